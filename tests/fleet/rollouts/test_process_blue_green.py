"""Blue-green by two real managers: the one that carries it is killed in any transition, and the other ends it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kapsa.fleet.settings import FleetSettings
from kapsa.fleet.testing.sample_chart import ControllerBehaviour
from kapsa.runtime.testing import Sample
from kapsa.runtime.testing._sweep_report import run_points
from tests.eventually import eventually
from tests.fleet.rollouts.live_fleet import CHART, GREEN, sample_chart
from tests.fleet.rollouts.manager_processes import PATIENCE, StoredTransition
from tests.fleet.rollouts.test_process_durability import (
    FLIPS,
    ProcessFleet,
    difference,
    process_fleet,
    transitions,
)

pytestmark = [pytest.mark.timeout(3600), pytest.mark.long]

_QUICK = 3
"""Points of a run that is not a full one."""


class SwitchPoint(msgspec.Struct, frozen=True):
    """A transition of a version that stays, or of one that is taken back after the hand-over."""

    behaviour: ControllerBehaviour
    transition: StoredTransition

    def __str__(self) -> str:
        return f"{self.transition} ({self.behaviour})"


class BlueGreenProcesses:
    """Blue-green deployments on one cluster. Each is taken back in the end, so that all begin alike."""

    def __init__(self, running: ProcessFleet) -> None:
        self.running = running
        self._versions = iter(range(2, 1000))

    async def deploy(self, behaviour: ControllerBehaviour) -> str:
        """Publish the next version, and request its blue-green deployment."""
        fleet, version = self.running.fleet, f"{next(self._versions)}.0.0"
        fleet.repository.add(sample_chart(version, behaviour))
        await fleet.admin.post(f"/operators/{CHART}/versions", {"version": version})
        return await fleet.deploy(version, "BlueGreen", GREEN)

    async def outcome(self, deployment: str) -> dict[str, Any]:
        """Wait for the end, and return all that must not depend on a kill; then take a completed one back."""
        await eventually(
            lambda: self.running.ended(deployment), bool, "the end of the rollout", seconds=PATIENCE
        )
        fleet = self.running.fleet
        details = (await fleet.details(deployment))["deployment"]
        outcome = {
            "phase": details["phase"],
            "steps": [line for line in await self.running.steps(deployment) if line not in FLIPS],
            "releases": await self._releases(),
            "new version runs": (await fleet.versions())["dev-1"] == details["version"],
            "controllers": (await fleet.versions())["dev-1"].count(",") + 1,
        }
        if details["phase"] == "Completed":
            await self._take_back(deployment)
        return outcome

    async def _releases(self) -> dict[str, list[str]]:
        """Return the status of each revision of each release in the cluster."""
        client = self.running.fleet.clients["dev-1"]
        listed = await client.list("v1/Secret", label_selector={"owner": "helm"}, metadata_only=True)
        releases: dict[str, list[str]] = {}
        for each in sorted(listed.items, key=lambda each: int(each["metadata"]["labels"]["version"])):
            labels = each["metadata"]["labels"]
            releases.setdefault(labels["name"], []).append(labels["status"])
        return releases

    async def _take_back(self, deployment: str) -> None:
        fleet = self.running.fleet
        await fleet.admin.post(
            f"/deployments/{deployment}/rollback", {"reason": "the next point begins alike"}
        )
        await eventually(
            lambda: fleet.details(deployment),
            lambda details: details["deployment"]["phase"] in ("RolledBack", "Failed"),
            "the way back",
            seconds=PATIENCE,
        )
        assert await fleet.versions() == {"dev-1": "1.0.0"}, await fleet.story(deployment)


async def test_a_manager_that_is_killed_in_any_transition_of_blue_green_is_replaced_by_the_other(
    settings: FleetSettings,
    tmp_path: Path,
    sample: Sample | None,
    record_property: Callable[[str, object], None],
) -> None:
    async with process_fleet(settings, tmp_path) as running:
        rollouts = BlueGreenProcesses(running)
        expected: dict[ControllerBehaviour, dict[str, Any]] = {}
        points: dict[StoredTransition, SwitchPoint] = {}
        for behaviour in (ControllerBehaviour.CRASHES, ControllerBehaviour.HEALTHY):
            undisturbed = await rollouts.deploy(behaviour)
            expected[behaviour] = await rollouts.outcome(undisturbed)
            for each in transitions(expected[behaviour]["steps"]):
                points.setdefault(each, SwitchPoint(behaviour, each))
        assert {each["phase"] for each in expected.values()} == {"RolledBack", "Completed"}

        async def difference_at(point: SwitchPoint) -> str:
            async with running.managers.hold(point.transition):
                deployment = await rollouts.deploy(point.behaviour)
                await eventually(running.managers.held, bool, str(point), seconds=PATIENCE)
                dead = await running.kill_holder(deployment, point.transition.table)
            await running.replace(dead)
            return difference(expected[point.behaviour], await rollouts.outcome(deployment))

        chosen = Sample(_QUICK, seed=sample.seed) if sample else None
        kind = "kills of a manager process in a transition of blue-green"
        report = await run_points(list(points.values()), difference_at, kind=kind, sample=chosen)
        record_property("sweep", str(report))
        assert not report.failures, str(report)
