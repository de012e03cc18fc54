"""A disk that is full in mid-rollout: it is reported, and the rollout goes on where it was once there is room."""

from __future__ import annotations

import os
from pathlib import Path

import httpx
import msgspec
import pytest

from kapsa.fleet.settings import FleetSettings
from tests.fleet.rollouts.live_fleet import CHART, NAMESPACE, LiveFleet, live_fleet, sample_chart
from tests.fleet.small_disk import mounted_disk, needs_root

TWO = {"dev-1": "Dev", "dev-2": "Dev"}
SOAKING = {"percentages": [50, 100], "evaluationPeriod": "PT30S"}
MEGABYTE = 1_000_000

pytestmark = [pytest.mark.timeout(1200), pytest.mark.long]


async def fail_by_writing(fleet: LiveFleet) -> str:
    """Register versions with large charts until the manager refuses one, or ends. Return why it did."""
    for number in range(60):
        version = f"9.0.{number}"
        fleet.repository.add(sample_chart(version, files={"files/large": os.urandom(MEGABYTE)}))
        try:
            status, answer = await fleet.admin.call(
                "POST", f"/operators/{CHART}/versions", {"version": version}
            )
        except httpx.TransportError as error:
            return f"no answer: {error!r}"
        if status >= 500:
            return f"{status} {answer}"
        assert status in (201, 429), answer
    raise AssertionError("the disk is not full")


@needs_root
async def test_a_disk_that_is_full_in_mid_rollout_delays_it_and_loses_nothing(
    settings: FleetSettings, open_directory: Path
) -> None:
    with mounted_disk(open_directory, megabytes=250) as disk:
        own = msgspec.structs.replace(settings, database_url="", data_directory=disk.path / "data")
        async with live_fleet(own, TWO) as fleet:
            await fleet.register_operator(sample_chart("1.0.0"), sample_chart("2.0.0"))
            await fleet.finish(await fleet.deploy("1.0.0", "Direct"))
            deployment = await fleet.deploy("2.0.0", "Canary", SOAKING)
            await fleet.await_phase(deployment, "Validating")

            disk.fill()
            failure = await fail_by_writing(fleet)
            assert failure.startswith(("503 ", "no answer")), failure
            disk.free()

            await fleet.restart()
            await fleet.finish(deployment)
            assert await fleet.versions() == dict.fromkeys(TWO, "2.0.0")
            for client in fleet.clients.values():
                releases = await client.list(
                    "v1/Secret", namespace=NAMESPACE, label_selector={"owner": "helm"}
                )
                names = sorted(each["metadata"]["name"] for each in releases.items)
                assert names == [f"sh.helm.release.v1.{CHART}.v{revision}" for revision in (1, 2)]
