"""Requests to servers that are not trusted."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from kapsa.adapters.errors import Refused, Unreachable
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


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("HTTP_PROXY", "robot:hunter2secret@127.0.0.1:{port}"),
        ("ALL_PROXY", "127.0.0.1:{port}"),
        ("HTTP_PROXY", "HTTP://127.0.0.1:{port}"),
    ],
    ids=["without a scheme", "for all", "in capitals"],
)
async def test_a_proxy_without_a_scheme_speaks_http(
    http: GuardedHttpClient, proxy: WebhookReceiver, monkeypatch: pytest.MonkeyPatch, variable: str, text: str
) -> None:
    forget_proxies(monkeypatch)
    monkeypatch.setenv(variable, text.format(port=proxy.port))
    assert (await http.fetch("GET", "http://charts.example.com/index.yaml")).status == 204
    assert [headers["host"] for headers, _ in proxy.received] == ["charts.example.com"]


async def test_a_proxy_of_another_protocol_is_not_called(
    http: GuardedHttpClient, proxy: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_proxies(monkeypatch)
    monkeypatch.setenv("HTTP_PROXY", f"socks5://127.0.0.1:{proxy.port}")
    with pytest.raises(Unreachable):
        await http.fetch("GET", "http://0.0.0.0:1/index.yaml")
    assert proxy.received == []


@pytest.mark.parametrize(
    ("text", "server"),
    [
        ("robot:hunter2secret@proxy.example:31x8", "proxy.example:31x8"),
        ("http://robot:1/hunter2secret@proxy.example:3128", "proxy.example:3128"),
        ("http://robot:hunter2secret#2@proxy.example:3128/path", "proxy.example:3128"),
        ("http://robot:hunter2secret@", ""),
    ],
    ids=["a port that is not a number", "a slash in the password", "a hash in the password", "no host"],
)
async def test_a_proxy_that_is_not_an_address_is_reported_without_its_password(
    http: GuardedHttpClient, monkeypatch: pytest.MonkeyPatch, text: str, server: str
) -> None:
    forget_proxies(monkeypatch)
    monkeypatch.setenv("HTTPS_PROXY", text)
    with pytest.raises(
        Refused, match=r"the proxy .* of HTTPS_PROXY or ALL_PROXY is not an address"
    ) as refused:
        await http.fetch("GET", "https://charts.example.com/index.yaml")
    assert repr(server) in str(refused.value)
    assert "hunter2secret" not in str(refused.value)
    assert "robot" not in str(refused.value)


async def test_the_password_of_a_proxy_that_refuses_is_not_shown(
    http: GuardedHttpClient, proxy: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_proxies(monkeypatch)
    monkeypatch.setenv("HTTPS_PROXY", f"http://robot:hunter2secret@127.0.0.1:{proxy.port}")
    with pytest.raises(Unreachable) as error:
        await http.fetch("GET", "https://charts.example.com/index.yaml")
    assert str(error.value) == "GET https://charts.example.com/index.yaml: the proxy answered 404 Not Found"


def forget_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


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
