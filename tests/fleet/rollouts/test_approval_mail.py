"""The mail of an approval, from the request of a deployment to a real SMTP server, over the death of the manager."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import text

from kapsa.fleet.settings import FleetSettings
from tests.eventually import eventually
from tests.fleet.infrastructure.delivery.mail_server import MailServer
from tests.fleet.rollouts.live_fleet import CANARY, live_fleet, sample_chart
from tests.fleet.rollouts.manager_processes import PATIENCE, ClaimOfMessage, manager_processes

pytestmark = [pytest.mark.timeout(1200), pytest.mark.long]

AGE = "SELECT fleet.now() - created_at FROM fleet.outbox WHERE kind = 'mail'"


async def test_the_mail_of_an_approval_is_received_within_30_seconds_although_its_manager_died(
    settings: FleetSettings, tmp_path: Path
) -> None:
    async with MailServer() as mail_server:
        settings = msgspec.structs.replace(
            settings,
            smtp_host="127.0.0.1",
            smtp_port=mail_server.port,
            smtp_security="none",
            mail_from="fleet@example.com",
            approval_recipients=("olga@example.com",),
        )
        async with live_fleet(settings, {"prod-1": "Production"}) as fleet:
            await fleet.server.tasks.stop()  # only the processes send mails
            await fleet.register_operator(sample_chart("1.0.0"))
            async with manager_processes(settings, tmp_path, count=1) as managers:
                (manager,) = managers.running
                async with managers.hold(ClaimOfMessage()):
                    deployment = await fleet.deploy("1.0.0", "Canary", CANARY)
                    await eventually(managers.held, bool, "a claim of the mail", seconds=PATIENCE)
                    await managers.kill(manager)
                assert mail_server.received == []
                await managers.start()
                (mail,) = await mail_server.wait_for(1)
                async with managers.database.transaction() as connection:
                    age = (await connection.execute(text(AGE))).scalar_one()
                assert age < timedelta(seconds=30)
                details = await fleet.details(deployment)
                assert details["deployment"]["phase"] == "AwaitingApproval"
                assert (mail["From"], mail["To"]) == ("fleet@example.com", "olga@example.com")
                assert details["deployment"]["planDigest"] in mail.get_content()
                await fleet.approve(deployment)
                await fleet.await_phase(deployment, "Completed", seconds=PATIENCE)
        assert len(mail_server.received) == 1
