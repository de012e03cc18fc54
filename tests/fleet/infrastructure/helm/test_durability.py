"""Managers and Helm runs that are killed, stopped and resumed, with the real binary."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from sqlalchemy import text

from kapsa.devcluster import DevCluster
from kapsa.fleet.domain.deployments import DeploymentPhase
from kapsa.fleet.domain.strategies import DirectStrategy
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.runtime.testing import Sample
from kapsa.runtime.testing._sweep_report import run_points
from tests.fleet.crash_points import CrashMoment
from tests.fleet.infrastructure.helm.rollout_on_cluster import KillPoint, RolloutOnCluster
from tests.fleet.real_helm import RealHelm, real_helm
from tests.fleet.rollout_harness import NEW, RELEASE


class KillScenario(msgspec.Struct, frozen=True):
    """A rollout, and the part of its writes at which it is killed."""

    end: DeploymentPhase
    installed: bool = True
    unhealthy: str = ""
    first_write: int = 1
    """Writes before this one are those of another scenario."""
    sampled: int = 5
    """Points of a quick run."""


SCENARIOS = {
    "upgrade": KillScenario(DeploymentPhase.COMPLETED, sampled=5),
    "rollback": KillScenario(DeploymentPhase.ROLLED_BACK, unhealthy=NEW, first_write=10, sampled=4),
    "first install, and uninstall": KillScenario(
        DeploymentPhase.ROLLED_BACK, installed=False, unhealthy=NEW, sampled=3
    ),
}


@pytest_asyncio.fixture
async def helm() -> AsyncIterator[RealHelm]:
    async with DevCluster(tls=True) as cluster, real_helm(cluster) as made:
        await made.client.create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": RELEASE.namespace}}
        )
        yield made


async def fleet_on(
    database: Database, helm: RealHelm, scenario: KillScenario
) -> tuple[RolloutOnCluster, Any]:
    async with database.transaction() as connection:
        await connection.execute(text("TRUNCATE fleet.operator, fleet.chart_archive, fleet.cluster CASCADE"))
    fleet = RolloutOnCluster(database, helm)
    await fleet.prepare(installed=scenario.installed, unhealthy=scenario.unhealthy)
    return fleet, await fleet.fleet.create(DirectStrategy())


def points(writes: list[str], scenario: KillScenario) -> list[KillPoint]:
    return [
        KillPoint(number, moment, write)
        for number, write in enumerate(writes, start=1)
        for moment in (CrashMoment.BEFORE, CrashMoment.EFFECT)
        if number >= scenario.first_write
    ]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_kill_at_any_write_of_helm_ends_like_the_undisturbed_run(
    name: str, database: Database, helm: RealHelm, sample: Sample | None, record_property: Any
) -> None:
    scenario = SCENARIOS[name]
    fleet, made = await fleet_on(database, helm, scenario)
    writes = await fleet.run(made)
    expected = await fleet.outcome(made)
    assert expected["phase"] is scenario.end

    async def difference_at(point: KillPoint) -> str:
        fleet, made = await fleet_on(database, helm, scenario)
        await fleet.run(made, point)
        actual = await fleet.outcome(made)
        return "; ".join(
            f"{key}: {expected[key]} became {actual[key]}" for key in expected if expected[key] != actual[key]
        )

    chosen = Sample(scenario.sampled, seed=sample.seed) if sample else None
    kind = f"kills of a manager and its Helm ({name})"
    report = await run_points(points(writes, scenario), difference_at, kind=kind, sample=chosen)
    record_property("sweep", str(report))
    assert not report.failures, str(report)
