"""Access whose credentials and authorities rotate."""

import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kapsa.runtime.client.auth.access import RotatingAccess
from kapsa.runtime.client.auth.credentials import DeclaredCredentials, RereadFile
from kapsa.runtime.client.auth.tls import present
from kapsa.runtime.client.client import Client
from kapsa.runtime.client.config import in_cluster
from kapsa.runtime.client.http.transport import HttpTransport
from kapsa.runtime.errors import ConfigError, Unauthorized
from kapsa.runtime.webhooks.certificates import issue_certificate, make_authority
from tests.runtime.client.clock import ManualClock
from tests.runtime.client.servers import DAY, FakeApiServer, http_server


async def test_a_rotated_service_account_token_is_used_after_one_401(tmp_path: Path) -> None:
    """The token changes within the minute in which its file is not read again."""
    now = datetime.now(UTC)
    authority = make_authority("cluster", now=now, lifetime=DAY)
    pair = issue_certificate(authority, ["127.0.0.1"], now=now, lifetime=DAY)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    present(tls, pair.certificate, pair.key)
    (tmp_path / "token").write_text("old")
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    api = FakeApiServer("old")
    async with http_server(api.handle, tls=tls) as server:
        port = server.rpartition(":")[2]
        environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}
        config = in_cluster(environment=environment, directory=tmp_path)
        async with Client(HttpTransport(config.access)) as client:
            await client.read("/version")
            (tmp_path / "token").write_text("new")
            api.token = "new"
            await client.read("/version")
            await client.read("/version")
    assert api.seen == ["old", "old", "new", "new"]


async def test_a_rotated_certificate_authority_is_trusted_after_its_file_is_read_again(
    tmp_path: Path,
) -> None:
    now = datetime.now(UTC)
    old, new = (make_authority(name, now=now, lifetime=DAY) for name in ("old", "new"))
    path = tmp_path / "ca.crt"
    path.write_bytes(old.certificate)
    clock = ManualClock()
    access = RotatingAccess(
        "https://x", DeclaredCredentials(token="t"), authority=RereadFile(path, name="CA", clock=clock)
    )
    before = await access.authorize()
    assert await access.authorize() is before
    path.write_bytes(old.certificate + new.certificate)
    clock.ahead = 61
    after = await access.authorize()
    assert after.tls is not before.tls


async def test_a_new_token_keeps_the_tls_context(tmp_path: Path) -> None:
    clock = ManualClock()
    path = tmp_path / "token"
    path.write_text("one")
    access = RotatingAccess(
        "https://x", DeclaredCredentials(token_file=RereadFile(path, name="t", clock=clock))
    )
    before = await access.authorize()
    path.write_text("two")
    clock.ahead = 61
    after = await access.authorize()
    assert after.headers != before.headers
    assert after.tls is before.tls


async def test_a_fixed_token_that_is_rejected_is_not_retried() -> None:
    api = FakeApiServer()
    async with http_server(api.handle) as server:
        access = RotatingAccess(server, DeclaredCredentials(token="bad"))
        async with Client(HttpTransport(access)) as client:
            with pytest.raises(Unauthorized):
                await client.read("/version")
    assert api.seen == ["bad"]


def test_insecure_and_an_authority_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="exclude each other"):
        RotatingAccess("https://x", DeclaredCredentials(), authority=b"x", insecure=True)
