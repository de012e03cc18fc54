"""Requests to servers that are not trusted."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from kapsa.adapters.http.client import GuardedHttpClient
from kapsa.adapters.testing.registry_server import RegistryServer
from kapsa.adapters.testing.webhook_receiver import WebhookReceiver


async def test_an_unverified_request_loads_no_authorities(
    registry_server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loading them takes longer than the rest of a request."""
    http = GuardedHttpClient(address_guard=None)
    read = []
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", lambda *_: read.append(1))
    monkeypatch.setattr(ssl.SSLContext, "set_default_verify_paths", lambda *_: read.append(1))
    try:
        for _ in range(2):
            response = await http.fetch("GET", f"http://{registry_server.endpoint}/v2/", verify=False)
            assert response.status == 200
    finally:
        await http.close()
    assert read == []


@pytest.fixture
async def http() -> AsyncIterator[GuardedHttpClient]:
    client = GuardedHttpClient(address_guard=None)
    yield client
    await client.close()


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[WebhookReceiver]:
    """The proxy of the environment, for all but one domain."""
    with WebhookReceiver() as receiver:
        for name in ("http_proxy", "HTTP_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{receiver.port}")
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.setenv(name, "exempt.example.com")
        yield receiver


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_token_for_this_machine_never_goes_through_a_proxy(
    http: GuardedHttpClient, proxy: WebhookReceiver, host: str
) -> None:
    with WebhookReceiver() as agent:
        await http.fetch("GET", f"http://{host}:{agent.port}/v1", headers={"X-Vault-Token": "hvs.secret"})
    assert [headers["x-vault-token"] for headers, _ in agent.received] == ["hvs.secret"]
    assert proxy.received == []


async def test_a_proxy_of_the_environment_is_used_for_other_machines(
    http: GuardedHttpClient, proxy: WebhookReceiver
) -> None:
    assert (await http.fetch("GET", "http://charts.example.com/index.yaml")).status == 204
    assert [headers["host"] for headers, _ in proxy.received] == ["charts.example.com"]


async def test_a_password_of_netrc_goes_to_no_server_and_is_in_nobodys_way(
    http: GuardedHttpClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login ada password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    with WebhookReceiver() as server:
        await http.fetch("POST", f"http://127.0.0.1:{server.port}", body=b"event")
        await http.fetch("GET", f"http://127.0.0.1:{server.port}", headers={"Authorization": "Bearer token"})
    assert [headers.get("authorization") for headers, _ in server.received] == [None, "Bearer token"]
