"""Planted secrets: none of the manager's own is in the database or the log."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.engine import URL
from structlog.testing import capture_logs

from kapsa.fleet.infrastructure.vault.encryption_keys import new_key_text
from kapsa.fleet.orchestrator.ports.audit import AuditEntry
from kapsa.fleet.orchestrator.ports.outbox import MailMessage, WebhookEvent
from kapsa.fleet.server.lifecycle import FleetServer
from kapsa.fleet.settings import FleetSettings
from tests.fleet.database_text import database_text
from tests.fleet.infrastructure.delivery.mail_server import MailServer


async def test_no_secret_of_the_manager_is_in_the_database_or_the_log(
    database_url: URL, tmp_path: Path
) -> None:
    key = new_key_text()
    secret_file = tmp_path / "webhook-secret"
    secret_file.write_text("planted-webhook-secret-of-a-file")
    planted = [
        key.partition(":")[2],
        "planted-smtp-password",
        "planted-webhook-secret-of-a-file",
        "planted-in-a-url",
    ]
    with capture_logs() as logs:
        async with MailServer(password=b"another") as mail_server:
            settings = FleetSettings(
                database_url=database_url.render_as_string(hide_password=False),
                data_directory=tmp_path,
                listen_port=0,
                encryption_keys=key,
                smtp_host="127.0.0.1",
                smtp_port=mail_server.port,
                smtp_security="none",
                smtp_username="fleet",
                smtp_password="planted-smtp-password",
                webhook_urls=("http://127.0.0.1:9/planted-in-a-url",),
                webhook_secret_file=secret_file,
            )
            async with FleetServer(settings) as server:
                await write_and_wait(server)
                stored = await database_text(server.services.database)
    shown = f"{stored}\n{logs}\n{settings!r}"
    assert "ada@example.com" in shown
    assert [secret for secret in planted if secret in shown] == []
    assert (tmp_path / "signing.key").read_text().splitlines()[1] not in shown


async def write_and_wait(server: FleetServer) -> None:
    """Send a mail and an event, both of which fail, and record an entry."""
    services = server.services
    async with services.database.transaction() as connection:
        await services.outbox.put(connection, MailMessage(("ada@example.com",), "s", "t"))
        await services.outbox.put(connection, WebhookEvent("approval.requested", {}))
        await services.audit.record(
            connection, AuditEntry(actor="ada", action="a", object_kind="k", object_id="1", payload={"x": 1})
        )
    failed = text("SELECT count(*) FROM fleet.outbox WHERE last_error <> ''")
    async with asyncio.timeout(120):
        while True:
            async with services.database.transaction() as connection:
                if (await connection.execute(failed)).scalar_one() == 2:
                    return
            await asyncio.sleep(0.05)
