"""A crash at every transition and every port call ends like the undisturbed run.

Each scenario runs once undisturbed and counts its operations. Then it runs once for each point: the process ends
there, another one takes over when the lease has lapsed, and the end state, the writes of Helm on each cluster and the
history must be the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from sqlalchemy import text

from kapsa.fleet.domain.rollout.deployments import DeploymentPhase
from kapsa.fleet.domain.rollout.strategies import (
    BlueGreenStrategy,
    CanaryStrategy,
    DirectStrategy,
    RollingStrategy,
)
from kapsa.fleet.domain.rollout.targets import TargetStep
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.runtime.testing import Sample
from kapsa.runtime.testing._sweep_report import run_points
from tests.fleet.crash_points import Crash, CrashingTransactions, CrashPlan, CrashPoint
from tests.fleet.examples import ADMIN, DEPLOYER
from tests.fleet.rollout_harness import NEW, RolloutHarness

SOAK = timedelta(seconds=30)
CANARY = CanaryStrategy(percentages=(50, 100), evaluation_period=SOAK)
ROLLING = RollingStrategy(validation_period=SOAK, pause_between_clusters=timedelta(seconds=10))
BLUE_GREEN = BlueGreenStrategy("blue", "green", validation_period=SOAK, monitoring_period=SOAK)
SAMPLED = 2
"""Points of a scenario in a quick run, which draws a few of the scenarios."""
LEFT_BEHIND = "2 resources lack fields"
TWO, ONE = ("dev-1", "dev-2"), ("dev-1",)

Act = Callable[[RolloutHarness, Any], Awaitable[bool]]


async def nothing(fleet: RolloutHarness, made: Any) -> bool:
    return False


async def approve(fleet: RolloutHarness, made: Any) -> bool:
    if (await fleet.deployment(made.id)).phase is not DeploymentPhase.AWAITING_APPROVAL:
        return False
    return await fleet.approve_all(made.id)


async def switch(fleet: RolloutHarness, made: Any) -> bool:
    waiting = [each.step is TargetStep.AWAIT_SWITCH for each in (await fleet.targets(made.id)).values()]
    if not any(waiting) or (await fleet.deployment(made.id)).switch_requested:
        return False
    await fleet.deployments.switch(DEPLOYER, made.id)
    return True


async def roll_back(fleet: RolloutHarness, made: Any) -> bool:
    if (await fleet.deployment(made.id)).phase is not DeploymentPhase.COMPLETED:
        return False
    await fleet.deployments.rollback(ADMIN, made.id, reason="a person saw errors")
    return True


class RolloutScenario(msgspec.Struct, frozen=True):
    """A deployment, the trouble that it meets, and what people do meanwhile."""

    strategy: Any
    end: DeploymentPhase
    clusters: tuple[str, ...] = TWO
    installed: bool = True
    unhealthy: tuple[str, ...] = ()
    helm_fails: tuple[str, ...] = ()
    rollback_fails: bool = False
    left_behind: bool = False
    """Each rollback leaves resources behind. The messages of the clusters are compared: a crash must not lose it."""
    act: Act = nothing

    async def prepare(self, database: Database) -> tuple[RolloutHarness, Any]:
        async with database.transaction() as connection:
            await connection.execute(
                text("TRUNCATE fleet.operator, fleet.chart_archive, fleet.cluster CASCADE")
            )
        fleet = RolloutHarness(database, *self.clusters)
        await fleet.register(installed=self.installed)
        fleet.clusters.unhealthy = {(name, NEW) for name in self.unhealthy}
        fleet.clusters.helm_fails = {(name, NEW) for name in self.helm_fails}
        fleet.clusters.rollback_fails = self.rollback_fails
        if self.left_behind:
            fleet.clusters.left_behind = dict.fromkeys(self.clusters, LEFT_BEHIND)
        return fleet, await fleet.create(self.strategy)

    async def run(
        self, database: Database, point: CrashPoint | None = None
    ) -> tuple[dict[str, Any], CrashPlan]:
        """Run to the end. After a crash another process takes over."""
        fleet, made = await self.prepare(database)
        plan = CrashPlan(point)
        engine = fleet.replica("manager-1", CrashingTransactions(database, plan), slots=1)
        fleet.clusters.interrupt = plan.interrupt
        try:
            await self._drive(fleet, made, engine)
        except* Crash:
            fleet.clusters.interrupt = (after := CrashPlan()).interrupt
            replacement = fleet.replica("manager-2", CrashingTransactions(database, after), slots=1)
            await self._drive(fleet, made, replacement)
        assert point is None or plan.crashed, "the point was not reached"
        return await fleet.summary(made.id), plan

    async def _drive(self, fleet: RolloutHarness, made: Any, engine: Any) -> None:
        await fleet.run(engine, act=lambda: self.act(fleet, made))


SCENARIOS = {
    "canary": RolloutScenario(CANARY, DeploymentPhase.COMPLETED),
    "canary, second cluster unhealthy": RolloutScenario(
        CANARY, DeploymentPhase.ROLLED_BACK, unhealthy=("dev-2",)
    ),
    "canary, rolled back by a person": RolloutScenario(
        CANARY, DeploymentPhase.ROLLED_BACK, act=roll_back, left_behind=True
    ),
    "canary, the rollback fails": RolloutScenario(
        CANARY, DeploymentPhase.FAILED, unhealthy=("dev-2",), rollback_fails=True, left_behind=True
    ),
    "canary in production": RolloutScenario(
        CANARY, DeploymentPhase.COMPLETED, clusters=("prod-1",), act=approve
    ),
    "rolling": RolloutScenario(ROLLING, DeploymentPhase.COMPLETED),
    "rolling, Helm fails on the second": RolloutScenario(
        ROLLING, DeploymentPhase.ROLLED_BACK, helm_fails=("dev-2",)
    ),
    "direct": RolloutScenario(DirectStrategy(), DeploymentPhase.COMPLETED),
    # One of two: whichever of two failing clusters is judged first gives the reason, and a crash changes the order.
    "direct, unhealthy": RolloutScenario(DirectStrategy(), DeploymentPhase.ROLLED_BACK, unhealthy=("dev-2",)),
    "first install": RolloutScenario(CANARY, DeploymentPhase.COMPLETED, ONE, installed=False),
    "first install, unhealthy": RolloutScenario(
        CANARY, DeploymentPhase.ROLLED_BACK, ONE, installed=False, unhealthy=ONE, left_behind=True
    ),
    "blue-green": RolloutScenario(BLUE_GREEN, DeploymentPhase.COMPLETED, ONE),
    "blue-green, switched by a person": RolloutScenario(
        msgspec.structs.replace(BLUE_GREEN, auto_switch=False), DeploymentPhase.COMPLETED, ONE, act=switch
    ),
    "blue-green, unhealthy after the switch": RolloutScenario(
        BLUE_GREEN, DeploymentPhase.ROLLED_BACK, ONE, unhealthy=ONE, left_behind=True
    ),
    "blue-green, Helm fails": RolloutScenario(BLUE_GREEN, DeploymentPhase.ROLLED_BACK, ONE, helm_fails=ONE),
    "blue-green, first install, unhealthy": RolloutScenario(
        BLUE_GREEN, DeploymentPhase.ROLLED_BACK, ONE, installed=False, unhealthy=ONE
    ),
}


def difference(expected: dict[str, Any], actual: dict[str, Any]) -> str:
    lines = [
        f"{key}: {expected[key]} became {actual[key]}" for key in expected if expected[key] != actual[key]
    ]
    return "; ".join(lines)


@pytest.mark.timeout(3600)
@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_crash_at_every_point_ends_like_the_undisturbed_run(
    name: str, database: Database, sample: Sample | None, record_property: Any
) -> None:
    scenario = SCENARIOS[name]
    expected, plan = await scenario.run(database)
    assert expected["phase"] is scenario.end
    assert expected["two controllers"] == []
    messages = [outcome[-1] for outcome in expected["clusters"].values()]
    assert [LEFT_BEHIND in message for message in messages] == [scenario.left_behind] * len(messages)

    async def difference_at(point: CrashPoint) -> str:
        return difference(expected, (await scenario.run(database, point))[0])

    few = Sample(SAMPLED, seed=sample.seed) if sample else None
    report = await run_points(plan.points(), difference_at, kind=f"crashes of a manager ({name})", sample=few)
    record_property("sweep", str(report))
    assert not report.failures, str(report)
