"""Two real managers on one database: the one that carries a rollout is killed, and the other ends it as undisturbed."""

from __future__ import annotations

import collections
import itertools
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kapsa.devcluster.faults.plan import Delay, FaultPlan, FaultRule, When
from kapsa.fleet.settings import FleetSettings
from kapsa.fleet.testing.sample_chart import ControllerBehaviour
from kapsa.runtime.testing import Sample
from kapsa.runtime.testing._sweep_report import run_points
from tests.eventually import eventually
from tests.fleet.rollouts.live_fleet import CHART, ENDS, LiveFleet, live_fleet, sample_chart
from tests.fleet.rollouts.manager_processes import (
    PATIENCE,
    ManagerProcess,
    ManagerProcesses,
    StoredTransition,
    manager_processes,
)

ONE = {"dev-1": "Dev"}
APPLIED = frozenset(
    {"secrets", "configmaps", "deployments", "serviceaccounts", "clusterroles", "customresourcedefinitions"}
)
"""Resources that only a rollout writes: simulated controllers write others."""
FLIPS = {"PhaseChanged Deploying → Validating", "PhaseChanged Validating → Deploying"}
"""Phases that follow the moment at which somebody looks."""

TAKEN_OVER = "another replica has taken over a cluster"

pytestmark = [pytest.mark.timeout(3600), pytest.mark.long]


class ApiWritePoint(msgspec.Struct, frozen=True):
    """The n-th write of one kind in a rollout, which does not get its answer."""

    verb: str
    resource: str
    nth: int
    when: When

    def __str__(self) -> str:
        return f"SIGKILL {self.when} {self.verb} #{self.nth} of {self.resource}"


class ProcessFleet:
    """A fleet of one cluster whose rollouts real processes carry; the test has only the API."""

    def __init__(self, fleet: LiveFleet, managers: ManagerProcesses, faults: FaultPlan | None) -> None:
        self.fleet = fleet
        self.managers = managers
        self.faults = faults
        self._numbers = itertools.count(2)

    async def deploy(self, behaviour: ControllerBehaviour = ControllerBehaviour.HEALTHY) -> str:
        """Publish the next version, and request its deployment."""
        version = f"{next(self._numbers)}.0.0"
        self.fleet.repository.add(sample_chart(version, behaviour))
        await self.fleet.admin.post(f"/operators/{CHART}/versions", {"version": version})
        return await self.fleet.deploy(version, "Direct")

    async def ended(self, deployment: str) -> bool:
        return (await self.fleet.details(deployment))["deployment"]["phase"] in ENDS

    async def outcome(self, deployment: str, revision: int) -> dict[str, Any]:
        """Wait for the end, and return all that must not depend on a kill. `revision` was the last one before."""
        details = await eventually(
            lambda: self.fleet.details(deployment),
            lambda details: details["deployment"]["phase"] in ENDS,
            "the end of the rollout",
            seconds=PATIENCE,
        )
        *earlier, (last, status) = sorted((await self.history()).items())
        version = (await self.fleet.versions())["dev-1"]
        return {
            "phase": details["deployment"]["phase"],
            "steps": [line for line in await self.steps(deployment) if line not in FLIPS],
            "new revisions": last - revision,
            "history": (status, {each for _, each in earlier}),
            "new version runs": version == details["deployment"]["version"],
            "controllers": version.count(",") + 1,
        }

    async def steps(self, deployment: str) -> list[str]:
        """Return the transitions in the history, without their causes, which name pods."""
        items = (await self.fleet.admin.get(f"/deployments/{deployment}/events"))["items"]
        lines = [
            f"{each['kind']} {each['message'].partition(':')[0]}" for each in items if "→" in each["message"]
        ]
        return [line.replace("Validating →", "Deploying →") if line not in FLIPS else line for line in lines]

    async def history(self) -> dict[int, str]:
        """Return the status of each revision in the cluster."""
        selector = {"owner": "helm", "name": CHART}
        listed = await self.fleet.clients["dev-1"].list(
            "v1/Secret", label_selector=selector, metadata_only=True
        )
        labels = [each["metadata"]["labels"] for each in listed.items]
        return {int(each["version"]): each["status"] for each in labels}

    async def revision(self) -> int:
        """Return the last revision in the cluster."""
        return max(await self.history())

    async def kill_holder(self, deployment: str, table: str = "") -> ManagerProcess:
        """Kill the replica that works on a deployment."""
        manager = await self.managers.holder(deployment, table)
        await self.managers.kill(manager)
        return manager

    async def replace(self, dead: ManagerProcess) -> None:
        """Let the leases of a dead replica lapse, and start another."""
        await self.managers.let_leases_lapse(dead)
        await self.managers.start()


@asynccontextmanager
async def process_fleet(
    settings: FleetSettings, directory: Path, engine: str = "embedded", faults: FaultPlan | None = None
) -> AsyncIterator[ProcessFleet]:
    """Start a cluster that runs 1.0.0, and two managers. The test's own serves the API and does nothing else."""
    plans = {"dev-1": faults} if faults is not None else None
    async with live_fleet(settings, ONE, engine=engine, faults=plans) as fleet:
        await fleet.server.tasks.stop()
        async with manager_processes(settings, directory) as managers:
            await fleet.register_operator(sample_chart("1.0.0"))
            await fleet.finish(await fleet.deploy("1.0.0", "Direct"), seconds=PATIENCE)
            yield ProcessFleet(fleet, managers, faults)


def transitions(steps: list[str]) -> list[StoredTransition]:
    """Return each transition of an undisturbed run once."""
    points: dict[StoredTransition, None] = {}
    for line in steps:
        kind, _, change = line.partition(" ")
        after = change.partition(" → ")[2]
        if line in FLIPS:
            continue
        if kind == "StepChanged":
            points[StoredTransition("deployment_cluster", "step", after)] = None
        elif kind == "PhaseChanged":
            points[StoredTransition("deployment", "phase", after)] = None
    return list(points)


def difference(expected: dict[str, Any], actual: dict[str, Any]) -> str:
    return "; ".join(
        f"{key}: {expected[key]} became {actual[key]}" for key in expected if expected[key] != actual[key]
    )


@pytest.mark.parametrize(
    "behaviour", [ControllerBehaviour.HEALTHY, ControllerBehaviour.CRASHES], ids=["upgrade", "rollback"]
)
async def test_a_manager_that_is_killed_in_any_transition_is_replaced_by_the_other(
    settings: FleetSettings,
    tmp_path: Path,
    engine: str,
    behaviour: ControllerBehaviour,
    sample: Sample | None,
    record_property: Callable[[str, object], None],
) -> None:
    async with process_fleet(settings, tmp_path, engine) as running:
        before = await running.revision()
        undisturbed = await running.deploy(behaviour)
        expected = await running.outcome(undisturbed, before)
        assert expected["phase"] == (
            "Completed" if behaviour is ControllerBehaviour.HEALTHY else "RolledBack"
        )

        async def difference_at(point: StoredTransition) -> str:
            before = await running.revision()
            async with running.managers.hold(point):
                deployment = await running.deploy(behaviour)
                await eventually(running.managers.held, bool, str(point), seconds=PATIENCE)
                dead = await running.kill_holder(deployment, point.table)
            await running.replace(dead)
            return difference(expected, await running.outcome(deployment, before))

        points = transitions(await running.steps(undisturbed))
        # Both tables, or the words of the history are not those that are looked for.
        assert {point.table for point in points} == {"deployment", "deployment_cluster"}, points
        kind = f"kills of a manager process in a transition ({behaviour})"
        chosen = Sample(3, seed=sample.seed) if sample else None
        report = await run_points(points, difference_at, kind=kind, sample=chosen)
        record_property("sweep", str(report))
        assert not report.failures, str(report)


async def test_a_manager_that_is_killed_in_the_middle_of_a_write_is_replaced_by_the_other(
    settings: FleetSettings, tmp_path: Path, request: pytest.FixtureRequest, record_property: Any
) -> None:
    faults = FaultPlan()
    async with process_fleet(settings, tmp_path, faults=faults) as running:
        before, start = await running.revision(), len(faults.records)
        undisturbed = await running.deploy()
        expected = await running.outcome(undisturbed, before)
        counts = collections.Counter(
            (each.verb, each.resource)
            for each in faults.records[start:]
            if each.is_write and each.resource in APPLIED
        )
        moments: tuple[When, ...] = ("before", "after")
        points = [
            ApiWritePoint(verb, resource, nth, when)
            for (verb, resource), count in sorted(counts.items())
            for nth in range(1, count + 1)
            for when in moments
        ]

        async def difference_at(point: ApiWritePoint) -> str:
            before = await running.revision()
            held = Delay(3600)
            rule = FaultRule(
                action=held, verb=point.verb, resource=point.resource, nth=point.nth, when=point.when
            )
            faults.add(rule)
            deployment = await running.deploy()

            async def reached() -> bool:
                return bool(rule.fired) or await running.ended(deployment)

            await eventually(reached, bool, str(point), seconds=PATIENCE)
            assert rule.fired, f"{point} was not reached"
            faults.remove(rule)
            await running.replace(await running.kill_holder(deployment))
            return difference(expected, await running.outcome(deployment, before))

        seed = request.config.getoption("--sweep-seed")
        report = await run_points(
            points, difference_at, kind="kills of a manager process in a write", sample=Sample(4, seed=seed)
        )
        record_property("sweep", str(report))
        assert not report.failures, str(report)


async def test_the_lease_of_a_killed_manager_lapses_by_itself(
    settings: FleetSettings, tmp_path: Path
) -> None:
    async with process_fleet(settings, tmp_path) as running:
        before = await running.revision()
        point = StoredTransition("deployment_cluster", "step", "Validate")
        async with running.managers.hold(point):
            deployment = await running.deploy()
            await eventually(running.managers.held, bool, str(point), seconds=PATIENCE)
            await running.kill_holder(deployment, point.table)
        outcome = await running.outcome(deployment, before)
        assert (outcome["phase"], outcome["new revisions"]) == ("Completed", 1), outcome


async def test_a_manager_that_is_asked_to_stop_ends_its_helm_and_leaves_no_lease_behind(
    settings: FleetSettings, tmp_path: Path
) -> None:
    faults = FaultPlan()
    async with process_fleet(settings, tmp_path, faults=faults) as running:
        before = await running.revision()
        rule = faults.add(FaultRule(action=Delay(3600), verb="create", resource="secrets"))
        deployment = await running.deploy()

        async def fired() -> bool:
            return bool(rule.fired)

        await eventually(fired, bool, "Helm that waits for an answer", seconds=PATIENCE)
        faults.remove(rule)
        manager = await running.managers.holder(deployment)
        assert await running.managers.terminate(manager) == 0, manager.log.read_text()
        assert await running.managers.leases_of(manager) == 0
        outcome = await running.outcome(deployment, before)
        assert (outcome["phase"], outcome["new revisions"]) == ("Completed", 1), outcome
        assert outcome["history"] == ("deployed", {"superseded"})


async def test_a_manager_that_sleeps_while_its_helm_runs_writes_nothing_after_another_took_its_lease(
    settings: FleetSettings, tmp_path: Path
) -> None:
    faults = FaultPlan()
    async with process_fleet(settings, tmp_path, faults=faults) as running:
        before = await running.revision()
        # The pending revision is stored, and Helm does not get the answer.
        rule = faults.add(FaultRule(action=Delay(3600), verb="create", resource="secrets", when="after"))
        deployment = await running.deploy()

        async def fired() -> bool:
            return bool(rule.fired)

        await eventually(fired, bool, "Helm that waits for an answer", seconds=PATIENCE)
        faults.remove(rule)
        sleeper = await running.managers.holder(deployment, "deployment_cluster")
        helm = sleeper.helm()
        sleeper.process.send_signal(signal.SIGSTOP)
        try:
            assert helm
            assert await running.managers.leases_of(sleeper)
            outcome = await running.outcome(deployment, before)
            assert await running.managers.leases_of(sleeper) == 0
            assert (outcome["phase"], outcome["new revisions"]) == ("Completed", 1), outcome
            assert set(sleeper.helm()) == set(helm), "the Helm of the sleeper waits for its gate"
            writes = rollout_writes(faults)
        finally:
            sleeper.process.send_signal(signal.SIGCONT)

        async def log() -> str:
            return sleeper.log.read_text()

        await eventually(log, lambda text: TAKEN_OVER in text, "a manager that noticed", seconds=PATIENCE)
        assert sleeper.helm() == []
        assert await running.managers.terminate(sleeper) == 0, sleeper.log.read_text()
        assert rollout_writes(faults) == writes
        assert await running.outcome(deployment, before) == outcome


def rollout_writes(faults: FaultPlan) -> list[tuple[int, str, str, str]]:
    """Return the writes of rollouts that the API server has received."""
    return [
        (each.number, each.verb, each.resource, each.name)
        for each in faults.records
        if each.is_write and each.resource in APPLIED
    ]
