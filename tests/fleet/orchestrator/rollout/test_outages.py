"""Outages of what a rollout depends on: it goes on where it was, and nothing is lost or done twice."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import URL
from sqlalchemy.ext.asyncio import AsyncConnection

from kapsa.fleet.domain.rollout.deployments import DeploymentPhase, VersionDeployment
from kapsa.fleet.domain.rollout.strategies import CanaryStrategy
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.programs import choose_programs
from kapsa.fleet.orchestrator.rollout.engine import RolloutEngine
from tests.fleet.conftest import PostgresServer
from tests.fleet.examples import DEPLOYER
from tests.fleet.rollout_harness import NEW, RELEASE, RolloutHarness

DEV = ("dev-1", "dev-2", "dev-3")
MINUTE = timedelta(minutes=1)
CANARY = CanaryStrategy(percentages=(30, 100), evaluation_period=MINUTE)
PAGE = Path(__file__).parents[4] / "docs" / "fleet" / "running.md"


async def started(database: Database) -> tuple[RolloutHarness, VersionDeployment]:
    """Return a fleet whose first cluster has the new version and soaks."""
    fleet = RolloutHarness(database, *DEV)
    await fleet.register()
    made = await fleet.create(CANARY)
    await fleet.settle()
    assert [name for name in DEV if fleet.clusters[name].completed] == ["dev-1"]
    return fleet, made


async def check_completed(fleet: RolloutHarness, made: VersionDeployment) -> None:
    """Check that the deployment is complete, with exactly one upgrade on each cluster."""
    deployment = await fleet.deployment(made.id)
    assert deployment.phase is DeploymentPhase.COMPLETED, deployment.message
    for name in DEV:
        assert fleet.clusters[name].completed == ["upgrade operators/cert-manager 2"]
        assert fleet.clusters[name].chart_of(RELEASE) == (2, NEW)
    kinds = [each.kind for each in await fleet.deployments.events(DEPLOYER, made.id)]
    assert kinds.count("StagePassed") == 2


def run_page(title: str, url: URL, directory: Path) -> None:
    """Run the commands of the block under a heading of the page for administrators, on a database."""
    (block,) = re.findall(
        rf"^\*\*{title}\*\*.*?```sh[^\n]*\n(.*?)```", PAGE.read_text(), re.DOTALL | re.MULTILINE
    )
    programs = str(choose_programs().postgres.parent)
    plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
    subprocess.run(
        ["/bin/sh", "-euc", block],
        cwd=directory,
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "KAPSA_DATABASE_URL": plain},
        check=True,
        timeout=120,
    )


@asynccontextmanager
async def restored_fleet(
    fleet: RolloutHarness, postgres: PostgresServer, directory: Path
) -> AsyncIterator[RolloutHarness]:
    """A fleet on a database that is restored from the backup in a directory, with the same clusters."""
    url = postgres.create_empty_database()
    run_page("Restore", url, directory)
    database = Database(url)
    try:
        restored = RolloutHarness(database, sources=fleet.sources, vault=fleet.vault)
        restored.set_time(fleet.now)
        yield restored
    finally:
        await database.close()
        postgres.drop_database(url)


@pytest.mark.long
async def test_a_backup_in_mid_rollout_is_restored_and_the_rollout_goes_on_where_it_was(
    database: Database, postgres: PostgresServer, tmp_path: Path
) -> None:
    fleet, made = await started(database)
    run_page("Back up", database.url, tmp_path)
    async with restored_fleet(fleet, postgres, tmp_path) as restored:
        await restored.run()
        await check_completed(restored, made)


@pytest.mark.long
async def test_clusters_that_went_on_after_the_backup_are_left_alone_until_a_person_retries(
    database: Database, postgres: PostgresServer, tmp_path: Path
) -> None:
    fleet, made = await started(database)
    run_page("Back up", database.url, tmp_path)
    await fleet.run()
    await check_completed(fleet, made)
    async with restored_fleet(fleet, postgres, tmp_path) as restored:
        await restored.pass_time(MINUTE)
        paused = await restored.deployment(made.id)
        assert paused.phase is DeploymentPhase.PAUSED
        assert "the plan was made for revision 1: retry the deployment" in paused.message
        assert all(restored.clusters[name].chart_of(RELEASE) == (2, NEW) for name in DEV)
        await restored.deployments.retry(DEPLOYER, made.id)
        await restored.run()
        assert (await restored.deployment(made.id)).phase is DeploymentPhase.COMPLETED
        assert all(restored.clusters[name].chart_of(RELEASE)[1] == NEW for name in DEV)


async def test_a_database_that_is_away_for_a_minute_while_helm_runs_delays_the_rollout_and_nothing_else(
    database: Database, postgres: PostgresServer
) -> None:
    fleet, made = await started(database)
    cuts: list[str] = []

    async def cut(call: str) -> None:
        if call.endswith("upgrade") and not cuts:
            cuts.append(call)
            postgres.cut_off(database.url)

    fleet.clusters.on_call = cut
    await fleet.pass_time(MINUTE - timedelta(seconds=1))
    fleet.set_time(fleet.now + timedelta(seconds=1))
    for _ in range(7):
        with contextlib.suppress(Exception):  # each round fails, as that of a background task would
            await fleet.engine.run_due()
        fleet.set_time(fleet.now + timedelta(seconds=10))
    assert len(cuts) == 1
    postgres.let_in(database.url)
    await fleet.run()
    await check_completed(fleet, made)


class SkewedDatabase:
    """The database as a replica sees it whose time is ahead, or behind."""

    def __init__(self, database: Database, fleet: RolloutHarness, skew: timedelta) -> None:
        self._database = database
        self._fleet = fleet
        self._skew = skew

    @asynccontextmanager
    async def transaction(self, **options: Any) -> AsyncIterator[AsyncConnection]:
        self._database.set_clock(self._fleet.now + self._skew)
        async with self._database.transaction(**options) as connection:
            yield connection

    async def now(self) -> datetime:
        self._database.set_clock(self._fleet.now + self._skew)
        return await self._database.now()


async def run_in_turns(fleet: RolloutHarness, *engines: RolloutEngine) -> list[int]:
    """Run engines in turn, and let time pass until all see what is due. Return the steps of each."""
    steps = [0] * len(engines)
    for _ in range(500):
        done = [await engine.run_due() for engine in engines]
        steps = [total + count for total, count in zip(steps, done, strict=True)]
        if any(done):
            continue
        due = await fleet.engine.next_due()
        if due is None:
            return steps
        fleet.set_time(max(due, fleet.now) + MINUTE)
    raise AssertionError("the rollout does not come to rest")


@pytest.mark.parametrize("skew", [MINUTE, -MINUTE], ids=["ahead", "behind"])
async def test_two_replicas_whose_time_differs_by_a_minute_change_each_cluster_once(
    database: Database, replica: Any, skew: timedelta
) -> None:
    fleet = RolloutHarness(database, *DEV)
    await fleet.register()
    made = await fleet.create(CANARY)
    right = fleet.replica("manager-1", slots=1)
    skewed = fleet.replica("manager-2", SkewedDatabase(replica(), fleet, skew), slots=1)
    steps = await run_in_turns(fleet, skewed, right)
    assert min(steps) > 0, f"one replica did everything: {steps}"
    await check_completed(fleet, made)
