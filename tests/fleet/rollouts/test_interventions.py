"""People, maintenance, and clusters that come and go, in the middle of a rollout on real clusters."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kapsa.devcluster.faults.plan import Drop, FaultPlan, FaultRule
from kapsa.fleet.domain.registry.windows import Weekday
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.settings import FleetSettings
from tests.eventually import eventually
from tests.fleet.rollouts.live_fleet import CHART, SECONDS, LiveFleet, live_fleet, sample_chart

TWO = {"dev-1": "Dev", "dev-2": "Dev"}
OLD, NEW = dict.fromkeys(TWO, "1.0.0"), dict.fromkeys(TWO, "2.0.0")
HALVES = {"percentages": [50, 100], "evaluationPeriod": "PT10S"}
"""The soak is long enough for a busy test to see the first cluster validate."""

pytestmark = [pytest.mark.timeout(1200), pytest.mark.long]


@asynccontextmanager
async def installed(settings: FleetSettings, **options: Any) -> AsyncIterator[LiveFleet]:
    """Start a fleet of two clusters that run 1.0.0, with 2.0.0 to come."""
    async with live_fleet(settings, TWO, **options) as fleet:
        await fleet.register_operator(sample_chart("1.0.0"), sample_chart("2.0.0"))
        await fleet.finish(await fleet.deploy("1.0.0", "Direct"))
        yield fleet


async def await_state(fleet: LiveFleet, deployment: str, cluster: str, *states: str) -> None:
    await eventually(
        lambda: fleet.states(deployment),
        lambda each: each[cluster] in states,
        f"{cluster} to be {states}",
        seconds=SECONDS,
    )


async def test_a_paused_deployment_begins_no_further_cluster_until_a_person_resumes_it(
    settings: FleetSettings,
) -> None:
    async with installed(settings) as fleet:
        deployment = await fleet.deploy("2.0.0", "Canary", HALVES)
        await await_state(fleet, deployment, "dev-1", "Applying", "Validating")
        await fleet.admin.post(f"/deployments/{deployment}/pause")
        await await_state(fleet, deployment, "dev-1", "Healthy")
        await asyncio.sleep(2)  # more than enough for the next stage to begin, if it did
        assert await fleet.states(deployment) == {"dev-1": "Healthy", "dev-2": "Pending"}
        assert await fleet.versions() == {"dev-1": "2.0.0", "dev-2": "1.0.0"}
        await fleet.admin.post(f"/deployments/{deployment}/resume")
        await fleet.finish(deployment)
        assert await fleet.versions() == NEW


async def test_an_admin_takes_a_completed_deployment_back_from_every_cluster(settings: FleetSettings) -> None:
    async with installed(settings) as fleet:
        deployment = await fleet.deploy("2.0.0", "Direct")
        await fleet.finish(deployment)
        assert await fleet.versions() == NEW
        await fleet.admin.post(f"/deployments/{deployment}/rollback", {"reason": "customers complain"})

        async def phase() -> str:
            return str((await fleet.details(deployment))["deployment"]["phase"])

        await eventually(
            phase, lambda name: name in ("RolledBack", "Failed"), "the end of the rollback", seconds=SECONDS
        )
        assert await phase() == "RolledBack", await fleet.story(deployment)
        status = await fleet.admin.get(f"/deployments/{deployment}/rollback-status")
        assert "customers complain" in status["reason"]
        assert {each["state"] for each in status["clusters"]} == {"RolledBack"}
        assert await fleet.versions() == OLD


async def test_an_abort_leaves_every_cluster_as_it_is_and_a_retry_finishes_the_rest(
    settings: FleetSettings,
) -> None:
    async with installed(settings) as fleet:
        deployment = await fleet.deploy("2.0.0", "Canary", HALVES)
        await await_state(fleet, deployment, "dev-1", "Validating")
        status, _ = await fleet.admin.call("DELETE", f"/deployments/{deployment}")
        assert status == 200
        await fleet.await_phase(deployment, "Aborted")
        assert await fleet.states(deployment) == {"dev-1": "Aborted", "dev-2": "Skipped"}
        assert await fleet.versions() == {"dev-1": "2.0.0", "dev-2": "1.0.0"}
        status, _ = await fleet.admin.call("DELETE", f"/deployments/{deployment}")
        assert status == 409  # history stays
        await fleet.admin.post(f"/deployments/{deployment}/retry", {})
        await fleet.finish(deployment)
        assert await fleet.versions() == NEW


async def test_a_frozen_cluster_waits_and_an_admin_may_override_the_freeze(settings: FleetSettings) -> None:
    async with installed(settings) as fleet:
        now = datetime.now(UTC)
        freeze = {
            "startsAt": (now - timedelta(hours=1)).isoformat(),
            "endsAt": (now + timedelta(days=1)).isoformat(),
            "reason": "year end",
        }
        status, answer = await fleet.admin.call("PATCH", "/clusters/dev-2", {"freezes": [freeze]})
        assert status == 200, answer
        waiting = await fleet.deploy("2.0.0", "Direct")
        await await_state(fleet, waiting, "dev-1", "Healthy")

        async def reason() -> str:
            clusters = (await fleet.details(waiting))["clusters"]
            return str(next(each["waitsFor"] for each in clusters if each["cluster"] == "dev-2"))

        await eventually(
            reason, lambda text: "year end" in text, "a wait that names the freeze", seconds=SECONDS
        )
        assert await fleet.versions() == {"dev-1": "2.0.0", "dev-2": "1.0.0"}
        await fleet.admin.call("DELETE", f"/deployments/{waiting}")
        await fleet.await_phase(waiting, "Aborted")
        override = await fleet.deploy(
            "2.0.0", "Direct", targets={"clusters": ["dev-2"]}, windowOverrideReason="a security fix"
        )
        await fleet.finish(override)
        assert await fleet.versions() == NEW


async def test_a_cluster_waits_for_its_maintenance_window_and_goes_on_when_it_opens(
    settings: FleetSettings,
) -> None:
    async with installed(settings) as fleet:
        database = fleet.server.services.database
        opens = (await database.now() + timedelta(hours=3)).replace(second=0, microsecond=0)
        window = {"days": list(Weekday), "start": f"{opens:%H:%M}", "duration": "PT1H"}
        status, answer = await fleet.admin.call("PATCH", "/clusters/dev-2", {"windows": [window]})
        assert status == 200, answer
        deployment = await fleet.deploy("2.0.0", "Direct")
        await await_state(fleet, deployment, "dev-1", "Healthy")
        waiting = await eventually(
            lambda: cluster_of(fleet, deployment, "dev-2"),
            lambda each: "no maintenance window is open" in each["waitsFor"],
            "a wait that names the window",
            seconds=SECONDS,
        )
        assert datetime.fromisoformat(waiting["deadline"]) == opens
        async with moving_clock(database, opens - timedelta(minutes=1)):
            await asyncio.sleep(2)  # more than enough for a cluster to begin, if it did
            assert await fleet.versions() == {"dev-1": "2.0.0", "dev-2": "1.0.0"}
        async with moving_clock(database, opens):
            await fleet.finish(deployment)
        assert await fleet.versions() == NEW
        history = (await fleet.admin.get(f"/deployments/{deployment}/events"))["items"]
        began = [each for each in history if each["cluster"] == "dev-2" and "Prepare → " in each["message"]]
        assert [datetime.fromisoformat(each["at"]) >= opens for each in began] == [True], history


async def cluster_of(fleet: LiveFleet, deployment: str, name: str) -> Any:
    clusters = (await fleet.details(deployment))["clusters"]
    return next(each for each in clusters if each["cluster"] == name)


@asynccontextmanager
async def moving_clock(database: Database, start: datetime) -> AsyncIterator[None]:
    """Let the time of the manager go on from another moment, for as long as the block runs."""
    began = time.monotonic()

    async def move() -> None:
        while True:
            database.set_clock(start + timedelta(seconds=time.monotonic() - began))
            await asyncio.sleep(0.05)

    task = asyncio.create_task(move())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_cluster_that_stops_answering_makes_the_rollout_wait_and_causes_no_rollback(
    settings: FleetSettings,
) -> None:
    faults = FaultPlan()
    async with installed(settings, faults={"dev-1": faults}) as fleet:
        deployment = await fleet.deploy("2.0.0", "Canary", HALVES)
        await await_state(fleet, deployment, "dev-1", "Validating")
        away = faults.add(FaultRule(action=Drop(), times=0))
        await asyncio.sleep(12)  # longer than the soak, and than three checks
        details = await fleet.details(deployment)
        assert details["deployment"]["phase"] in ("Deploying", "Validating"), await fleet.story(deployment)
        assert await fleet.states(deployment) == {"dev-1": "Validating", "dev-2": "Pending"}
        faults.remove(away)
        await fleet.finish(deployment)
        assert await fleet.versions() == NEW


async def test_a_cluster_that_is_deleted_in_the_middle_stops_no_other(settings: FleetSettings) -> None:
    async with installed(settings) as fleet:
        deployment = await fleet.deploy("2.0.0", "Canary", HALVES)
        await await_state(fleet, deployment, "dev-1", "Validating")
        status, answer = await fleet.admin.call("DELETE", "/clusters/dev-1")
        assert status in (200, 204), answer
        done = await fleet.finish(deployment)
        states = {each["cluster"]: (each["state"], each["reason"]) for each in done["clusters"]}
        assert states.pop("dev-2") == ("Healthy", "")
        ((erased, outcome),) = states.items()
        assert (erased.startswith("deleted-"), outcome) == (True, ("Skipped", "Deleted"))
        assert (await fleet.versions())["dev-2"] == "2.0.0"


async def test_a_second_manager_finishes_what_a_stopped_one_has_begun(settings: FleetSettings) -> None:
    from kapsa.fleet.server.lifecycle import FleetServer

    async with installed(settings) as fleet:
        deployment = await fleet.deploy("2.0.0", "Canary", HALVES)
        await await_state(fleet, deployment, "dev-1", "Applying", "Validating")
        await fleet.server.tasks.stop()
        async with FleetServer(settings):
            await fleet.finish(deployment)
        assert await fleet.versions() == NEW
        history = await fleet.clients["dev-1"].list(
            "v1/Secret", label_selector={"name": CHART, "owner": "helm"}
        )
        assert len(history.items) == 2, "one revision for each version"
