"""The exports of a configured manager about a rollout: signed events to a webhook, and spans to a collector."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from kapsa.adapters.testing.webhook_receiver import WebhookReceiver
from kapsa.fleet.infrastructure.delivery.webhooks import webhook_signature
from kapsa.fleet.settings import FleetSettings
from tests.eventually import eventually
from tests.fleet.rollouts.live_fleet import CANARY, live_fleet, sample_chart
from tests.fleet.rollouts.manager_processes import PATIENCE, manager_processes

pytestmark = [pytest.mark.timeout(1200), pytest.mark.long]

SECRET = "a planted secret of 32 characters"


async def test_a_manager_sends_the_end_of_a_rollout_to_its_webhook_signed(settings: FleetSettings) -> None:
    with WebhookReceiver() as receiver:
        settings = msgspec.structs.replace(
            settings,
            webhook_urls=(f"http://127.0.0.1:{receiver.port}/hook",),
            webhook_secret=SECRET,
        )
        async with live_fleet(settings, {"dev-1": "Dev"}) as fleet:
            await fleet.register_operator(sample_chart("1.0.0"))
            deployment = await fleet.deploy("1.0.0", "Canary", CANARY)
            await fleet.await_phase(deployment, "Completed", seconds=PATIENCE)

            async def received() -> list[object]:
                return receiver.received

            await eventually(received, bool, "an event", seconds=PATIENCE)
    ((headers, body),) = receiver.received
    event = msgspec.json.decode(body)
    assert (event["type"], event["data"]["deployment"]) == ("deployment.completed", deployment)
    signature = webhook_signature(
        SECRET.encode(), headers["webhook-id"], int(headers["webhook-timestamp"]), body
    )
    assert signature in headers["webhook-signature"].split()


async def test_a_served_manager_exports_the_spans_of_a_rollout_to_a_collector(
    settings: FleetSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with WebhookReceiver() as collector:
        async with live_fleet(settings, {"dev-1": "Dev"}) as fleet:
            await fleet.server.tasks.stop()  # only the process works
            await fleet.register_operator(sample_chart("1.0.0"))
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.port}")
            async with manager_processes(settings, tmp_path, count=1) as managers:
                deployment = await fleet.deploy("1.0.0", "Canary", CANARY)
                await fleet.await_phase(deployment, "Completed", seconds=PATIENCE)
                (manager,) = managers.running
                assert await managers.terminate(manager) == 0
    assert {headers["content-type"] for headers, _ in collector.received} == {"application/x-protobuf"}
    exported = b"".join(body for _, body in collector.received)
    assert deployment.encode() in exported
