"""Exec plugins, and requests whose credential is rejected."""

import asyncio
import base64
import json
import ssl
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from kapsa.runtime.client.auth.exec_plugin import ExecConfig, ExecPlugin
from kapsa.runtime.client.client import Client
from kapsa.runtime.client.config import from_kubeconfig
from kapsa.runtime.client.http.transport import HttpTransport
from kapsa.runtime.errors import CredentialError, NoResponse, Unauthorized
from kapsa.runtime.webhooks.certificates import issue_certificate, make_authority
from tests.runtime.client.clock import ManualClock
from tests.runtime.client.servers import DAY, FakeApiServer, http_server

PLUGIN = """
import datetime, json, os, pathlib, sys, time
here = pathlib.Path(__file__).parent
runs = here / "runs"
runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
behaviour = json.loads((here / "behaviour.json").read_text())
(here / "info.json").write_text(os.environ["KUBERNETES_EXEC_INFO"])
(here / "seen.json").write_text(json.dumps({"args": sys.argv[1:], "env": os.environ.get("GREETING"), "stdin": sys.stdin.read()}))
time.sleep(behaviour.get("sleep", 0))
if "fail" in behaviour:
    print(behaviour["fail"], file=sys.stderr)
    sys.exit(3)
if "print" in behaviour:
    print(behaviour["print"])
    sys.exit(0)
status = behaviour["status"]
if "lifetime" in behaviour:
    end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=behaviour["lifetime"])
    status["expirationTimestamp"] = end.isoformat()
version = json.loads(os.environ["KUBERNETES_EXEC_INFO"])["apiVersion"]
print(json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status}))
"""


class FakePlugin:
    """An exec plugin in a directory, and a kubeconfig with its relative path."""

    def __init__(
        self, directory: Path, server: str = "https://api", authority: str = "", **exec_options: Any
    ) -> None:
        self.directory = directory
        script = directory / "plugin"
        script.write_text(f"#!{sys.executable}\n{PLUGIN}")
        script.chmod(0o755)
        self.behave(status={"token": "good"})
        options = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "./plugin",
            "interactiveMode": "IfAvailable",
            **exec_options,
        }
        cluster: dict[str, Any] = {
            "server": server,
            "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}],
        }
        if authority:
            cluster["certificate-authority"] = authority
        document = {
            "current-context": "x",
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"exec": options}}],
        }
        self.kubeconfig = directory / "config"
        self.kubeconfig.write_text(yaml.safe_dump(document))

    def behave(self, **behaviour: Any) -> None:
        (self.directory / "behaviour.json").write_text(json.dumps(behaviour))

    @property
    def runs(self) -> int:
        path = self.directory / "runs"
        return len(path.read_text()) if path.exists() else 0

    def access(self, clock: ManualClock | None = None) -> Any:
        return from_kubeconfig([self.kubeconfig], environment={}, clock=clock or ManualClock()).access

    def read(self, name: str) -> Any:
        return json.loads((self.directory / name).read_text())


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_an_exec_plugin_gets_its_arguments_its_environment_and_no_terminal(
    version: str, tmp_path: Path
) -> None:
    plugin = FakePlugin(
        tmp_path,
        apiVersion=f"client.authentication.k8s.io/{version}",
        args=["--region", "x"],
        env=[{"name": "GREETING", "value": "hello"}],
    )
    authorization = await plugin.access().authorize()
    assert authorization.headers == (("Authorization", "Bearer good"),)
    assert plugin.read("seen.json") == {"args": ["--region", "x"], "env": "hello", "stdin": ""}
    assert plugin.read("info.json") == {
        "apiVersion": f"client.authentication.k8s.io/{version}",
        "kind": "ExecCredential",
        "spec": {"interactive": False},
    }


async def test_a_plugin_with_provide_cluster_info_gets_the_cluster(tmp_path: Path) -> None:
    plugin = FakePlugin(tmp_path, provideClusterInfo=True)
    await plugin.access().authorize()
    assert plugin.read("info.json")["spec"]["cluster"] == {
        "server": "https://api",
        "config": {"audience": "a"},
    }


async def test_a_plugin_gets_the_content_of_the_authority_file(tmp_path: Path) -> None:
    authority = make_authority("test", now=datetime.now(UTC), lifetime=timedelta(days=1)).certificate
    (tmp_path / "ca.pem").write_bytes(authority)
    plugin = FakePlugin(tmp_path, authority="ca.pem", provideClusterInfo=True)
    await plugin.access().authorize()
    authority_data = plugin.read("info.json")["spec"]["cluster"]["certificate-authority-data"]
    assert base64.b64decode(authority_data) == authority


def test_the_error_for_an_unreadable_authority_names_it(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").mkdir()
    plugin = FakePlugin(tmp_path, authority="ca.pem", provideClusterInfo=True)
    with pytest.raises(CredentialError, match=r"cluster.certificate-authority: cannot read .*ca\.pem"):
        plugin.access()


async def test_an_expired_exec_token_is_refreshed_once_for_many_callers(tmp_path: Path) -> None:
    clock = ManualClock()
    plugin = FakePlugin(tmp_path)
    plugin.behave(status={"token": "short"}, lifetime=3600)
    access = plugin.access(clock)
    await asyncio.gather(*(access.authorize() for _ in range(50)))
    assert plugin.runs == 1
    clock.ahead = 3000
    await access.authorize()
    assert plugin.runs == 1
    clock.ahead = 3595
    plugin.behave(status={"token": "fresh"}, lifetime=7200, sleep=0.2)
    authorizations = await asyncio.gather(*(access.authorize() for _ in range(50)))
    assert plugin.runs == 2
    assert {each.headers[0][1] for each in authorizations} == {"Bearer fresh"}


async def test_a_plugin_never_blocks_the_event_loop(tmp_path: Path) -> None:
    plugin = FakePlugin(tmp_path)
    plugin.behave(status={"token": "good"}, sleep=0.4)
    task = asyncio.create_task(plugin.access().authorize())
    turns = 0
    while not task.done():
        await asyncio.sleep(0.005)
        turns += 1
    assert turns >= 10  # a loop that waits for the plugin would turn once or twice


async def test_a_cancelled_caller_does_not_stop_the_plugin_for_the_others(tmp_path: Path) -> None:
    plugin = FakePlugin(tmp_path)
    plugin.behave(status={"token": "good"}, sleep=0.3)
    access = plugin.access()
    cancelled = asyncio.create_task(access.authorize())
    waiting = asyncio.create_task(access.authorize())
    await asyncio.sleep(0.05)
    cancelled.cancel()
    assert (await waiting).headers == (("Authorization", "Bearer good"),)
    assert plugin.runs == 1


async def test_a_rejected_token_is_renewed_and_the_request_retried_once(tmp_path: Path) -> None:
    api = FakeApiServer("second")
    async with http_server(api.handle) as server:
        plugin = FakePlugin(tmp_path, server)
        plugin.behave(status={"token": "first"})
        async with Client(HttpTransport(plugin.access())) as client:
            with pytest.raises(Unauthorized):
                await client.read("/version")
            assert api.seen == ["first", "first"]
            plugin.behave(status={"token": "second"})
            await client.read("/version")
    assert api.seen == ["first", "first", "first", "second"]


async def test_a_rejected_watch_is_retried_once_with_a_new_token(tmp_path: Path) -> None:
    api = FakeApiServer("second")
    async with http_server(api.handle) as server:
        plugin = FakePlugin(tmp_path, server)
        plugin.behave(status={"token": "first"})
        transport = HttpTransport(plugin.access())
        await transport.request("GET", "/x")
        plugin.behave(status={"token": "second"})
        async with transport.stream("GET", "/watch") as response:
            assert response.status == 200
        await transport.close()
    assert api.seen[-1] == "second"


async def test_a_request_is_not_sent_if_credentials_arrive_after_its_deadline(
    tmp_path: Path,
) -> None:
    api = FakeApiServer()
    async with http_server(api.handle) as server:
        plugin = FakePlugin(tmp_path, server)
        plugin.behave(status={"token": "good"}, sleep=0.5)
        transport = HttpTransport(plugin.access())
        with pytest.raises(NoResponse, match="timed out while getting credentials") as caught:
            await transport.request("PATCH", "/x", timeout=0.2)
        assert (await transport.request("PATCH", "/x", timeout=5)).status == 200
        await transport.close()
    assert caught.value.sent is False
    assert api.seen == ["good"]


async def test_many_rejected_requests_run_the_plugin_once(tmp_path: Path) -> None:
    api = FakeApiServer("first")
    async with http_server(api.handle) as server:
        plugin = FakePlugin(tmp_path, server)
        plugin.behave(status={"token": "first"})
        async with Client(HttpTransport(plugin.access())) as client:
            await client.read("/version")
            api.token = "second"
            plugin.behave(status={"token": "second"}, sleep=0.3)
            await asyncio.gather(*(client.read("/version") for _ in range(20)))
    assert plugin.runs == 2


async def test_a_client_certificate_from_a_plugin_is_used(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    authority = make_authority("test", now=now, lifetime=DAY)
    pair = issue_certificate(authority, ["me"], now=now, lifetime=DAY, usage="client")
    plugin = FakePlugin(tmp_path)
    plugin.behave(
        status={"clientCertificateData": pair.certificate.decode(), "clientKeyData": pair.key.decode()}
    )
    authorization = await plugin.access().authorize()
    assert authorization.headers == ()
    assert isinstance(authorization.tls, ssl.SSLContext)


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        ({"fail": "please run: cloud login"}, "failed with exit code 3: please run: cloud login"),
        ({"print": "hello"}, "did not print an ExecCredential"),
        (
            {"print": '{"kind":"ExecCredential","apiVersion":"v9"}'},
            "expected ExecCredential of client",
        ),
        ({"status": {}}, "without a token and without a certificate"),
        ({"status": {"clientCertificateData": "x"}}, "a certificate without its key"),
        ({"print": "x" * 2_000_000}, "printed more than 1 MB"),
    ],
)
async def test_the_error_of_a_failing_plugin_names_the_plugin_and_the_reason(
    behaviour: dict[str, Any], message: str, tmp_path: Path
) -> None:
    plugin = FakePlugin(tmp_path)
    plugin.behave(**behaviour)
    with pytest.raises(CredentialError, match=message) as caught:
        await plugin.access().authorize()
    assert "plugin" in str(caught.value)


async def test_the_error_for_a_missing_plugin_contains_its_install_hint(tmp_path: Path) -> None:
    plugin = FakePlugin(tmp_path, command="no-such-command-anywhere", installHint="Install it with: get it\n")
    with pytest.raises(CredentialError, match=r"is not installed\. Install it with: get it$"):
        await plugin.access().authorize()


async def test_a_plugin_that_hangs_is_killed_after_its_timeout(tmp_path: Path) -> None:
    FakePlugin(tmp_path).behave(status={"token": "late"}, sleep=60)
    config = ExecConfig(command="./plugin", api_version="client.authentication.k8s.io/v1")
    source = ExecPlugin(config, directory=tmp_path, clock=ManualClock(), timeout=0.3)
    started = time.monotonic()
    with pytest.raises(CredentialError, match=r"did not return a credential within 0\.3 s"):
        await source.current()
    assert time.monotonic() - started < 20
