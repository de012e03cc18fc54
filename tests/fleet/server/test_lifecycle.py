"""The manager from start to stop: with nothing configured, with a database, and with what makes it refuse."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from sqlalchemy import text
from sqlalchemy.engine import URL
from structlog.testing import capture_logs

from kapsa.adapters.testing.vault_server import VaultServer
from kapsa.adapters.variables import SettingsError
from kapsa.fleet.infrastructure.local_keys import LocalKeys
from kapsa.fleet.infrastructure.postgres.database import Database, DatabaseError
from kapsa.fleet.infrastructure.vault.encryption_keys import KeyRingError, new_key_text
from kapsa.fleet.orchestrator.ports.audit import AuditEntry
from kapsa.fleet.server.lifecycle import FleetServer, serve
from kapsa.fleet.settings import FleetSettings
from kapsa.runtime.testing import issue_certificate, make_authority
from tests.eventually import eventually
from tests.fleet.conftest import PostgresServer
from tests.fleet.infrastructure.delivery.mail_server import MailServer

DYING_WRITER = """
import asyncio, os, signal, sys
from pathlib import Path
from kapsa.fleet.infrastructure.delivery.outbox import PostgresOutbox
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.embedded import EmbeddedServer
from kapsa.fleet.infrastructure.postgres.migration import migrate
from kapsa.fleet.orchestrator.ports.outbox import MailMessage

async def main():
    server = EmbeddedServer(Path(sys.argv[1]))
    await server.start()
    database = Database(server.url())
    await migrate(database)
    async with database.transaction() as connection:
        await PostgresOutbox().put(connection, MailMessage(("ada@example.com",), "Approval needed", "now"))
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def text_of(url: URL) -> str:
    return url.render_as_string(hide_password=False)


def external(database_url: URL, directory: Path, **options: Any) -> FleetSettings:
    """Settings of a manager on a database that it did not start."""
    defaults = {"listen_port": 0, "encryption_keys": new_key_text(), "data_directory": directory}
    return FleetSettings(database_url=text_of(database_url), **(defaults | options))


async def health(server: FleetServer) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.get(f"{server.http.url}/health") as response:
        return response.status, await response.json()


@pytest.fixture
async def server(database_url: URL, tmp_path: Path) -> AsyncIterator[FleetServer]:
    async with FleetServer(external(database_url, tmp_path)) as running:
        yield running


async def test_a_start_with_nothing_configured_makes_a_database_and_keys_and_says_so(
    open_directory: Path,
) -> None:
    directory = open_directory / "data"
    with capture_logs() as logs:
        async with FleetServer(FleetSettings(data_directory=directory, listen_port=0)) as server:
            assert (await health(server))[0] == 200
    warnings = [entry["event"] for entry in logs if entry["log_level"] == "warning"]
    assert [warning.split(":")[0] for warning in warnings] == [
        "generated a key for tokens of `kapsa fleet token`",
        "generated an encryption key",
    ]
    for name in ("encryption.keys", "signing.key", "holder", "postgres.log"):
        assert (directory / name).stat().st_mode & 0o777 == 0o600
    keys = (directory / "encryption.keys").read_text(), (directory / "signing.key").read_text()
    assert not any(secret in str(logs) for secret in (keys[0].split(":")[1].strip(), keys[1].splitlines()[1]))
    with capture_logs() as logs:
        async with FleetServer(FleetSettings(data_directory=directory, listen_port=0)):
            pass
    assert [entry["event"] for entry in logs if entry["log_level"] == "warning"] == []
    assert keys == ((directory / "encryption.keys").read_text(), (directory / "signing.key").read_text())


async def test_the_background_tasks_seal_what_is_recorded(server: FleetServer) -> None:
    services = server.services
    entry = AuditEntry(actor="ada", action="a", object_kind="k", object_id="1")
    async with services.database.transaction() as connection:
        await services.audit.record(connection, entry)
    async with asyncio.timeout(120):
        while True:
            async with services.database.transaction() as connection:
                sealed = await connection.execute(text("SELECT count(*) FROM fleet.audit_seal"))
                if sealed.scalar_one() == 1:
                    break
            await asyncio.sleep(0.05)


async def test_health_reports_a_database_that_is_gone(server: FleetServer, postgres: PostgresServer) -> None:
    assert await health(server) == (200, {"status": "Healthy", "version": "0.1.0", "database": "Reachable"})
    postgres.cut_off(server.services.database.url)
    status, body = await health(server)
    assert (status, body["database"]) == (503, "Unreachable")
    async with aiohttp.ClientSession() as session, session.get(f"{server.http.url}/livez") as response:
        assert (response.status, await response.text()) == (200, "ok"), "a restart would not help"


@pytest.mark.long
async def test_a_manager_whose_database_was_away_goes_on_by_itself(
    server: FleetServer, postgres: PostgresServer
) -> None:
    services = server.services
    entry = AuditEntry(actor="ada", action="a", object_kind="k", object_id="1")
    async with services.database.transaction() as connection:
        await services.audit.record(connection, entry)
        before = (await connection.execute(text("SELECT count(*) FROM fleet.audit_entry"))).scalar_one()
    postgres.cut_off(services.database.url)
    assert (await health(server))[0] == 503
    await asyncio.sleep(2)  # rounds of the background tasks fail meanwhile
    postgres.let_in(services.database.url)
    async with asyncio.timeout(300):
        while (await health(server))[0] != 200:  # noqa: ASYNC110 - the server has no event for it
            await asyncio.sleep(0.1)
        while True:
            async with services.database.transaction() as connection:
                sealed = (
                    await connection.execute(text("SELECT count(*) FROM fleet.audit_seal"))
                ).scalar_one()
            if sealed >= before:
                break
            await asyncio.sleep(0.1)


async def test_a_configured_database_without_a_key_is_refused(database_url: URL, tmp_path: Path) -> None:
    settings = external(database_url, tmp_path, encryption_keys="")
    with pytest.raises(
        SettingsError, match=r"KAPSA_FLEET_ENCRYPTION_KEYS_FILE or KAPSA_FLEET_ENCRYPTION_KEYS must be set"
    ):
        await FleetServer(settings).__aenter__()


async def test_a_start_with_another_key_is_refused(database_url: URL, tmp_path: Path) -> None:
    async with FleetServer(external(database_url, tmp_path)):
        pass
    with pytest.raises(KeyRingError, match="need the encryption key"):
        await FleetServer(external(database_url, tmp_path)).__aenter__()


async def test_a_database_that_is_newer_is_refused_at_the_start(
    database: Database, database_url: URL, tmp_path: Path
) -> None:
    async with database.transaction() as connection:
        await connection.execute(text("UPDATE fleet.alembic_version SET version_num = '9999_future'"))
    with pytest.raises(DatabaseError, match="newer than this program"):
        await FleetServer(external(database_url, tmp_path)).__aenter__()


@pytest.mark.long
async def test_a_manager_that_waits_for_vault_is_alive_and_not_ready(
    database_url: URL, tmp_path: Path
) -> None:
    with VaultServer() as vault:
        vault.sealed = True
        settings = external(
            database_url,
            tmp_path,
            encryption_keys="",
            vault_address=vault.url,
            vault_transit_key="fleet",
            vault_token=vault.token,
        )

        async def requested() -> int:
            return len(vault.requests)

        server = FleetServer(settings)
        start = asyncio.create_task(server.__aenter__())
        try:
            await eventually(requested, bool, "a request to Vault", seconds=120)
            async with aiohttp.ClientSession(server.http.url) as session:
                async with session.get("/livez") as response:
                    assert (response.status, await response.text()) == (200, "ok")
                for path in ("/health", "/api/v1/clusters"):
                    async with session.get(path) as response:
                        assert (response.status, response.headers["Retry-After"]) == (503, "5")
                        assert "is starting" in await response.text()
            assert not start.done()
        finally:
            vault.sealed = False
            await start
        try:
            assert (await health(server))[0] == 200
        finally:
            await server.__aexit__()


async def test_a_taken_port_is_one_line_and_stops_what_was_started(database_url: URL, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = FleetServer(external(database_url, tmp_path, listen_port=port))
        with pytest.raises(SettingsError, match=rf"cannot listen on 127\.0\.0\.1:{port}: .*LISTEN_PORT"):
            await server.__aenter__()
    assert not [task for task in asyncio.all_tasks() if task.get_name() in ("audit-sealer", "outbox")]


async def test_the_api_is_served_over_tls_1_2_or_newer(database_url: URL, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    authority = make_authority("fleet", now=now, lifetime=timedelta(days=1))
    pair = issue_certificate(authority, ["127.0.0.1"], now=now, lifetime=timedelta(days=1))
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    certificate.write_bytes(pair.certificate)
    key.write_bytes(pair.key)
    trusted = ssl.create_default_context(cadata=authority.certificate.decode())
    settings = external(database_url, tmp_path, tls_certificate=certificate, tls_key=key)
    async with FleetServer(settings) as server, aiohttp.ClientSession() as session:
        assert server.http.url.startswith("https://")
        async with session.get(f"{server.http.url}/health", ssl=trusted) as response:
            assert response.status == 200
        old = ssl.create_default_context(cadata=authority.certificate.decode())
        old.set_ciphers("DEFAULT@SECLEVEL=0")  # or this side would refuse the old version
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.maximum_version = old.minimum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", int(server.http.url.rpartition(":")[2]), ssl=old)


async def test_a_certificate_that_expires_is_replaced_without_a_restart(
    database_url: URL, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    authority = make_authority("fleet", now=now - timedelta(days=9), lifetime=timedelta(days=99))
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"

    def write(begin: datetime) -> None:
        pair = issue_certificate(authority, ["127.0.0.1"], now=begin, lifetime=timedelta(days=2))
        certificate.write_bytes(pair.certificate)
        key.write_bytes(pair.key)

    write(now - timedelta(days=3))  # it has expired
    trusted = ssl.create_default_context(cadata=authority.certificate.decode())
    settings = external(database_url, tmp_path, tls_certificate=certificate, tls_key=key)
    async with FleetServer(settings) as server, aiohttp.ClientSession() as session:
        served = server.http.certificate
        assert served is not None
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await session.get(f"{server.http.url}/health", ssl=trusted)
        key.write_text("half of a renewal")
        with capture_logs() as logs:
            assert not await served.reload()
        assert logs[0]["event"].startswith("the changed certificate of the API is not used")
        write(now)
        assert await served.reload()
        async with session.get(f"{server.http.url}/health", ssl=trusted) as response:
            assert response.status == 200
        assert "certificate" in {task.get_name() for task in asyncio.all_tasks()}


async def test_a_certificate_that_cannot_be_read_is_one_line(database_url: URL, tmp_path: Path) -> None:
    settings = external(
        database_url, tmp_path, tls_certificate=tmp_path / "no.crt", tls_key=tmp_path / "no.key"
    )
    with pytest.raises(
        SettingsError, match="KAPSA_FLEET_TLS_CERTIFICATE and KAPSA_FLEET_TLS_KEY cannot be used"
    ):
        await FleetServer(settings).__aenter__()


async def test_a_signal_ends_the_run_with_code_0(database_url: URL, tmp_path: Path) -> None:
    with capture_logs() as logs:
        run = asyncio.create_task(serve(external(database_url, tmp_path)))

        async def ready() -> bool:
            return any(entry["event"] == "the fleet manager is ready" for entry in logs)

        await eventually(ready, bool, "a manager that is ready", seconds=120)
        os.kill(os.getpid(), signal.SIGTERM)
        assert await asyncio.wait_for(run, 120) == 0
    assert logs[-1]["event"] == "the fleet manager stops on a signal"


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_a_manager_that_waits_for_vault(
    database_url: URL, tmp_path: Path, number: signal.Signals
) -> None:
    with VaultServer() as vault:
        vault.sealed = True
        variables = {
            "KAPSA_DATABASE_URL": text_of(database_url),
            "KAPSA_FLEET_DATA_DIRECTORY": str(tmp_path),
            "KAPSA_FLEET_LISTEN_PORT": "0",
            "KAPSA_FLEET_VAULT_ADDRESS": vault.url,
            "KAPSA_FLEET_VAULT_TRANSIT_KEY": "fleet",
            "KAPSA_FLEET_VAULT_TOKEN": vault.token,
        }
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("KAPSA_")}
        command = "import sys; from kapsa.cli import main; sys.argv[1:] = ['fleet', 'serve']; main()"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", command), env=inherited | variables, stderr=subprocess.PIPE
        )

        async def requested() -> int:
            return len(vault.requests)

        try:
            await eventually(requested, bool, "a request to Vault", seconds=120)
            process.send_signal(number)
            _, output = await asyncio.wait_for(process.communicate(), 60)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert process.returncode == 0, output.decode()
    assert "stops on a signal, before it was ready" in output.decode()
    assert "Traceback" not in output.decode()


@pytest.mark.long
async def test_the_end_of_the_embedded_database_ends_the_run_with_code_1(open_directory: Path) -> None:
    async with FleetServer(FleetSettings(data_directory=open_directory / "data", listen_port=0)) as server:
        pid = int((open_directory / "data" / "postgres" / "postmaster.pid").read_text().split()[0])
        run = asyncio.create_task(server.run_until_stopped(asyncio.Event()))
        os.kill(pid, signal.SIGKILL)
        assert await asyncio.wait_for(run, 120) == 1


async def test_two_managers_that_start_together_share_a_database(database_url: URL, tmp_path: Path) -> None:
    settings = external(database_url, tmp_path)
    first, second = FleetServer(settings), FleetServer(settings)
    await asyncio.gather(first.__aenter__(), second.__aenter__())
    assert (await health(first))[0] == (await health(second))[0] == 200
    await asyncio.gather(first.__aexit__(), second.__aexit__())


@pytest.mark.long
async def test_a_mail_is_received_after_a_crash_between_its_commit_and_its_sending(
    open_directory: Path,
) -> None:
    directory = open_directory / "data"
    died = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", DYING_WRITER, directory])
    assert died.returncode == -signal.SIGKILL
    async with MailServer() as mail_server:
        settings = FleetSettings(
            data_directory=directory,
            listen_port=0,
            smtp_host="127.0.0.1",
            smtp_port=mail_server.port,
            smtp_security="none",
        )
        async with FleetServer(settings):
            (mail,) = await mail_server.wait_for(1)
    assert mail["Subject"] == "Approval needed"


def test_a_signing_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    keys = LocalKeys(tmp_path)
    keys.ensure_signing_key()
    keys.signing_key_file.chmod(0o644)
    with pytest.raises(KeyRingError, match="open to other users"):
        keys.signing_key()


def test_a_missing_or_damaged_signing_key_is_reported(tmp_path: Path) -> None:
    keys = LocalKeys(tmp_path)
    with pytest.raises(KeyRingError, match="cannot be read: No such file"):
        keys.signing_key()
    keys.signing_key_file.touch(mode=0o600)
    with pytest.raises(KeyRingError, match="is not a private key"):
        keys.signing_key()
