"""Credentials that change: rotated tokens, exec plugins, OIDC; and what happens after a 401."""

import asyncio
import base64
import json
import ssl
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from structlog.testing import capture_logs

from kapsa.runtime.client.auth.access import RotatingAccess
from kapsa.runtime.client.auth.credentials import DeclaredCredentials, RereadFile
from kapsa.runtime.client.auth.tls import present
from kapsa.runtime.client.client import Client
from kapsa.runtime.client.config import from_kubeconfig, in_cluster
from kapsa.runtime.client.http.transport import HttpTransport
from kapsa.runtime.errors import ConfigError, CredentialError, NoResponse, Unauthorized
from kapsa.runtime.webhooks.certificates import issue_certificate, make_authority

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
DAY = timedelta(days=1)


class ManualClock:
    """The machine's clock, set forward by hand."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self.ahead)

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead

    async def sleep(self, seconds: float) -> None:
        self.ahead += seconds


@asynccontextmanager
async def serving(handler: Handler, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


class Doorkeeper:
    """An API server that lets in the bearer of the right token and counts who knocked."""

    def __init__(self, token: str = "good") -> None:
        self.token = token
        self.seen: list[str] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        given = request.headers.get("Authorization", "")
        self.seen.append(given.removeprefix("Bearer "))
        if given != f"Bearer {self.token}":
            return web.json_response({"status": "Failure", "code": 401, "reason": "Unauthorized"}, status=401)
        return web.json_response({"gitVersion": "v1.36.3"})


# Files that change


async def test_a_token_file_is_read_again_at_most_every_minute(tmp_path: Path) -> None:
    clock = ManualClock()
    path = tmp_path / "token"
    path.write_text("one")
    source = DeclaredCredentials(token_file=RereadFile(path, what="token", clock=clock))
    first = await source.current()
    path.write_text("two")
    clock.ahead = 59
    assert await source.current() is first
    clock.ahead = 61
    assert (await source.current()).headers == (("Authorization", "Bearer two"),)


async def test_a_token_file_that_vanishes_leaves_the_last_token_in_use(tmp_path: Path) -> None:
    clock = ManualClock()
    path = tmp_path / "token"
    path.write_text("one")
    source = DeclaredCredentials(token_file=RereadFile(path, what="token", clock=clock))
    first = await source.current()
    path.unlink()
    clock.ahead = 120
    assert await source.current() is first


async def test_a_token_file_that_was_never_there_is_named(tmp_path: Path) -> None:
    file = RereadFile(tmp_path / "token", what="user.tokenFile", clock=ManualClock())
    with pytest.raises(CredentialError, match=r"user.tokenFile: cannot read .*token: No such file"):
        await DeclaredCredentials(token_file=file).current()
    fallback = await DeclaredCredentials(token="written", token_file=file).current()
    assert fallback.headers == (("Authorization", "Bearer written"),)


async def test_a_rotated_service_account_token_is_picked_up_by_one_retry_after_a_401(tmp_path: Path) -> None:
    """The token is replaced in its file within the minute in which the file is not looked at."""
    now = datetime.now(UTC)
    authority = make_authority("cluster", now=now, lifetime=DAY)
    pair = issue_certificate(authority, ["127.0.0.1"], now=now, lifetime=DAY)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    present(tls, pair.certificate, pair.key)
    (tmp_path / "token").write_text("old")
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    door = Doorkeeper("old")
    async with serving(door.handle, tls=tls) as server:
        port = server.rpartition(":")[2]
        environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}
        target = in_cluster(environment=environment, directory=tmp_path)
        async with Client(HttpTransport(target.access)) as client:
            await client.read("/version")
            (tmp_path / "token").write_text("new")
            door.token = "new"
            await client.read("/version")
            await client.read("/version")
    assert door.seen == ["old", "old", "new", "new"]


async def test_a_rotated_certificate_authority_is_trusted_after_it_is_read_again(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    old, new = (make_authority(name, now=now, lifetime=DAY) for name in ("old", "new"))
    path = tmp_path / "ca.crt"
    path.write_bytes(old.certificate)
    clock = ManualClock()
    access = RotatingAccess(
        "https://x", DeclaredCredentials(token="t"), authority=RereadFile(path, what="CA", clock=clock)
    )
    before = await access.authorize()
    assert await access.authorize() is before
    path.write_bytes(old.certificate + new.certificate)
    clock.ahead = 61
    after = await access.authorize()
    assert after.tls is not before.tls


async def test_a_new_token_keeps_the_tls_context_and_so_the_connections(tmp_path: Path) -> None:
    clock = ManualClock()
    path = tmp_path / "token"
    path.write_text("one")
    access = RotatingAccess(
        "https://x", DeclaredCredentials(token_file=RereadFile(path, what="t", clock=clock))
    )
    before = await access.authorize()
    path.write_text("two")
    clock.ahead = 61
    after = await access.authorize()
    assert after.headers != before.headers
    assert after.tls is before.tls


async def test_a_fixed_token_that_is_refused_is_not_tried_again(tmp_path: Path) -> None:
    door = Doorkeeper()
    async with serving(door.handle) as server:
        access = RotatingAccess(server, DeclaredCredentials(token="bad"))
        async with Client(HttpTransport(access)) as client:
            with pytest.raises(Unauthorized):
                await client.read("/version")
    assert door.seen == ["bad"]


def test_insecure_and_an_authority_contradict_each_other() -> None:
    with pytest.raises(ConfigError, match="exclude each other"):
        RotatingAccess("https://x", DeclaredCredentials(), authority=b"x", insecure=True)


# Exec plugins


PLUGIN = """
import datetime, json, os, pathlib, sys, time
here = pathlib.Path(__file__).parent
runs = here / "runs"
runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
behave = json.loads((here / "behave.json").read_text())
(here / "info.json").write_text(os.environ["KUBERNETES_EXEC_INFO"])
(here / "seen.json").write_text(json.dumps({"args": sys.argv[1:], "env": os.environ.get("GREETING"), "stdin": sys.stdin.read()}))
time.sleep(behave.get("sleep", 0))
if "fail" in behave:
    print(behave["fail"], file=sys.stderr)
    sys.exit(3)
if "print" in behave:
    print(behave["print"])
    sys.exit(0)
status = behave["status"]
if "lives" in behave:
    end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=behave["lives"])
    status["expirationTimestamp"] = end.isoformat()
version = json.loads(os.environ["KUBERNETES_EXEC_INFO"])["apiVersion"]
print(json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status}))
"""


class Plugin:
    """An exec plugin in a directory, with a kubeconfig that names it by a relative path."""

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

    def behave(self, **how: Any) -> None:
        (self.directory / "behave.json").write_text(json.dumps(how))

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
    plugin = Plugin(
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


async def test_a_plugin_that_asks_for_it_is_told_about_the_cluster(tmp_path: Path) -> None:
    plugin = Plugin(tmp_path, provideClusterInfo=True)
    await plugin.access().authorize()
    assert plugin.read("info.json")["spec"]["cluster"] == {
        "server": "https://api",
        "config": {"audience": "a"},
    }


async def test_a_plugin_is_told_the_authority_that_the_kubeconfig_names_by_its_file(tmp_path: Path) -> None:
    authority = make_authority("test", now=datetime.now(UTC), lifetime=timedelta(days=1)).certificate
    (tmp_path / "ca.pem").write_bytes(authority)
    plugin = Plugin(tmp_path, authority="ca.pem", provideClusterInfo=True)
    await plugin.access().authorize()
    told = plugin.read("info.json")["spec"]["cluster"]["certificate-authority-data"]
    assert base64.b64decode(told) == authority


def test_an_authority_that_cannot_be_read_for_a_plugin_is_named(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").mkdir()
    plugin = Plugin(tmp_path, authority="ca.pem", provideClusterInfo=True)
    with pytest.raises(CredentialError, match=r"cluster.certificate-authority: cannot read .*ca\.pem"):
        plugin.access()


async def test_an_expired_exec_token_is_refreshed_once_for_many_callers(tmp_path: Path) -> None:
    clock = ManualClock()
    plugin = Plugin(tmp_path)
    plugin.behave(status={"token": "short"}, lives=3600)
    access = plugin.access(clock)
    await asyncio.gather(*(access.authorize() for _ in range(50)))
    assert plugin.runs == 1
    clock.ahead = 3000
    await access.authorize()
    assert plugin.runs == 1
    clock.ahead = 3595
    plugin.behave(status={"token": "fresh"}, lives=7200, sleep=0.2)
    answers = await asyncio.gather(*(access.authorize() for _ in range(50)))
    assert plugin.runs == 2
    assert {answer.headers[0][1] for answer in answers} == {"Bearer fresh"}


async def test_a_plugin_never_blocks_the_event_loop(tmp_path: Path) -> None:
    plugin = Plugin(tmp_path)
    plugin.behave(status={"token": "good"}, sleep=0.4)
    asked = asyncio.create_task(plugin.access().authorize())
    turns = 0
    while not asked.done():
        await asyncio.sleep(0.005)
        turns += 1
    assert turns >= 10  # a loop that waited for the plugin would have turned once or twice


async def test_a_caller_that_gives_up_does_not_stop_the_plugin_for_the_others(tmp_path: Path) -> None:
    plugin = Plugin(tmp_path)
    plugin.behave(status={"token": "good"}, sleep=0.3)
    access = plugin.access()
    impatient = asyncio.create_task(access.authorize())
    patient = asyncio.create_task(access.authorize())
    await asyncio.sleep(0.05)
    impatient.cancel()
    assert (await patient).headers == (("Authorization", "Bearer good"),)
    assert plugin.runs == 1


async def test_a_refused_exec_token_is_replaced_and_the_request_sent_once_more(tmp_path: Path) -> None:
    door = Doorkeeper("second")
    async with serving(door.handle) as server:
        plugin = Plugin(tmp_path, server)
        plugin.behave(status={"token": "first"})
        async with Client(HttpTransport(plugin.access())) as client:
            with pytest.raises(Unauthorized):
                await client.read("/version")
            assert door.seen == ["first", "first"]
            plugin.behave(status={"token": "second"})
            await client.read("/version")
    assert door.seen == ["first", "first", "first", "second"]


async def test_a_refused_watch_is_opened_once_more_with_a_new_token(tmp_path: Path) -> None:
    door = Doorkeeper("second")
    async with serving(door.handle) as server:
        plugin = Plugin(tmp_path, server)
        plugin.behave(status={"token": "first"})
        transport = HttpTransport(plugin.access())
        await transport.request("GET", "/x")
        plugin.behave(status={"token": "second"})
        async with transport.stream("GET", "/watch") as response:
            assert response.status == 200
        await transport.close()
    assert door.seen[-1] == "second"


async def test_a_request_does_not_leave_once_its_time_is_over_though_credentials_came_late(
    tmp_path: Path,
) -> None:
    door = Doorkeeper()
    async with serving(door.handle) as server:
        plugin = Plugin(tmp_path, server)
        plugin.behave(status={"token": "good"}, sleep=0.5)
        transport = HttpTransport(plugin.access())
        with pytest.raises(NoResponse, match="timed out while getting credentials") as caught:
            await transport.request("PATCH", "/x", timeout=0.2)
        assert (await transport.request("PATCH", "/x", timeout=5)).status == 200
        await transport.close()
    assert caught.value.sent is False
    assert door.seen == ["good"]


async def test_many_callers_refused_at_once_run_the_plugin_once(tmp_path: Path) -> None:
    door = Doorkeeper("first")
    async with serving(door.handle) as server:
        plugin = Plugin(tmp_path, server)
        plugin.behave(status={"token": "first"})
        async with Client(HttpTransport(plugin.access())) as client:
            await client.read("/version")
            door.token = "second"
            plugin.behave(status={"token": "second"}, sleep=0.3)
            await asyncio.gather(*(client.read("/version") for _ in range(20)))
    assert plugin.runs == 2


async def test_a_client_certificate_from_a_plugin_is_used(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    authority = make_authority("test", now=now, lifetime=DAY)
    pair = issue_certificate(authority, ["me"], now=now, lifetime=DAY, usage="client")
    plugin = Plugin(tmp_path)
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
async def test_a_plugin_that_fails_says_which_and_why(
    behaviour: dict[str, Any], message: str, tmp_path: Path
) -> None:
    plugin = Plugin(tmp_path)
    plugin.behave(**behaviour)
    with pytest.raises(CredentialError, match=message) as caught:
        await plugin.access().authorize()
    assert "plugin" in str(caught.value)


async def test_a_plugin_that_is_not_installed_comes_with_its_install_hint(tmp_path: Path) -> None:
    plugin = Plugin(tmp_path, command="no-such-command-anywhere", installHint="Install it with: get it\n")
    with pytest.raises(CredentialError, match=r"is not installed\. Install it with: get it$"):
        await plugin.access().authorize()


async def test_a_plugin_that_hangs_is_ended_after_its_time_limit(tmp_path: Path) -> None:
    from kapsa.runtime.client.auth.exec_plugin import ExecConfig, ExecPlugin

    Plugin(tmp_path).behave(status={"token": "late"}, sleep=60)
    config = ExecConfig(command="./plugin", api_version="client.authentication.k8s.io/v1")
    source = ExecPlugin(config, directory=tmp_path, clock=ManualClock(), timeout=0.3)
    started = time.monotonic()
    with pytest.raises(CredentialError, match=r"did not return a credential within 0\.3 s"):
        await source.current()
    assert time.monotonic() - started < 20


# OIDC


def token(expires_in: float, name: str) -> str:
    def part(content: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none'})}.{part({'exp': time.time() + expires_in, 'sub': name})}.sig"


class Issuer:
    """An OpenID Connect issuer that gives out tokens for refresh tokens and rotates those."""

    def __init__(self) -> None:
        self.requests: list[dict[str, str]] = []
        self.authorizations: list[str | None] = []
        self.url = ""
        self.answer: dict[str, str] = {}

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/.well-known/openid-configuration":
            return web.json_response({"issuer": self.url, "token_endpoint": f"{self.url}/token"})
        form = await request.post()
        self.requests.append({key: str(value) for key, value in form.items()})
        self.authorizations.append(request.headers.get("Authorization"))
        return web.json_response(self.answer, status=400 if "error" in self.answer else 200)


def oidc_kubeconfig(path: Path, server: str, **config: str) -> Path:
    document = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"auth-provider": {"name": "oidc", "config": config}}}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


async def test_an_id_token_is_used_until_it_expires_then_refreshed_once_and_kept(tmp_path: Path) -> None:
    issuer = Issuer()
    async with serving(issuer.handle) as url:
        issuer.url = url
        first, second = token(3600, "first"), token(9000, "second")
        issuer.answer = {"id_token": second, "refresh_token": "refresh-2"}
        path = oidc_kubeconfig(
            tmp_path / "config",
            "https://api",
            **{
                "idp-issuer-url": url,
                "client-id": "kapsa",
                "client-secret": "s",
                "id-token": first,
                "refresh-token": "refresh-1",
            },
        )
        clock = ManualClock()
        access = from_kubeconfig([path], environment={}, clock=clock).access
        assert (await access.authorize()).headers == (("Authorization", f"Bearer {first}"),)
        assert issuer.requests == []
        clock.ahead = 3600
        answers = await asyncio.gather(*(access.authorize() for _ in range(20)))
    assert {answer.headers[0][1] for answer in answers} == {f"Bearer {second}"}
    assert issuer.requests == [
        {"grant_type": "refresh_token", "refresh_token": "refresh-1", "client_id": "kapsa"}
    ]
    assert issuer.authorizations[0] == "Basic a2Fwc2E6cw=="
    kept = yaml.safe_load(path.read_text())["users"][0]["user"]["auth-provider"]["config"]
    assert (kept["id-token"], kept["refresh-token"], kept["client-id"]) == (second, "refresh-2", "kapsa")
    assert path.stat().st_mode & 0o077 == 0


async def test_a_renewed_token_is_used_where_it_cannot_be_written_back_and_that_is_said_once(
    tmp_path: Path,
) -> None:
    issuer = Issuer()
    async with serving(issuer.handle) as url:
        issuer.url = url
        config = {"idp-issuer-url": url, "client-id": "kapsa", "refresh-token": "refresh-1"}
        path = oidc_kubeconfig(tmp_path / "config", "https://api", **config)
        clock = ManualClock()
        access = from_kubeconfig([path], environment={}, clock=clock).access
        path.unlink()
        with capture_logs() as logs:
            for number in (2, 3):
                fresh = token(clock.ahead + 3600, f"number {number}")
                issuer.answer = {"id_token": fresh, "refresh_token": f"refresh-{number}"}
                assert (await access.authorize()).headers == (("Authorization", f"Bearer {fresh}"),)
                clock.ahead += 3600
    assert [request["refresh_token"] for request in issuer.requests] == ["refresh-1", "refresh-2"]
    (entry,) = [each for each in logs if "write the renewed token back" in each["event"]]
    assert str(path) in entry["error"]
    assert "context 'x'" in entry["field"]


async def test_an_issuer_that_refuses_says_so_and_asks_for_a_login(tmp_path: Path) -> None:
    issuer = Issuer()
    async with serving(issuer.handle) as url:
        issuer.url = url
        issuer.answer = {"error": "invalid_grant", "error_description": "Token expired"}
        config = {"idp-issuer-url": url, "client-id": "kapsa", "refresh-token": "r"}
        path = oidc_kubeconfig(tmp_path / "config", "https://api", **config)
        with pytest.raises(CredentialError, match=r"did not renew the token: Token expired; log in again"):
            await from_kubeconfig([path], environment={}).access.authorize()


async def test_an_expired_id_token_without_a_refresh_token_asks_for_a_login(tmp_path: Path) -> None:
    config = {"idp-issuer-url": "https://idp", "client-id": "kapsa", "id-token": token(-5, "old")}
    path = oidc_kubeconfig(tmp_path / "config", "https://api", **config)
    with pytest.raises(CredentialError, match="has expired and there is no refresh-token; log in again"):
        await from_kubeconfig([path], environment={}).access.authorize()
