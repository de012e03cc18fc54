"""A healthy version is not rolled back: whole rollouts with slow pods, a cluster out of reach, and busy API servers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import msgspec
import pytest

from kapsa.fleet.domain.health import CheckKind, Evidence, HealthCheck
from kapsa.fleet.domain.rollout.deployments import DeploymentPhase
from kapsa.fleet.domain.rollout.strategies import (
    BlueGreenStrategy,
    CanaryStrategy,
    DirectStrategy,
    RollingStrategy,
    RolloutStrategy,
)
from kapsa.fleet.domain.rollout.targets import TargetState
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.orchestrator.ports.clusters import ClusterUnreachable
from kapsa.runtime.testing import Sample
from tests.fleet.examples import ADMIN
from tests.fleet.helm_double import Interruption, TooBusy
from tests.fleet.rollout_harness import PATIENCE, VERSIONS, RolloutHarness

RUNS = 200
SAMPLED = 1
MINUTE = timedelta(minutes=1)
CLUSTERS = ("dev-1", "dev-2", "dev-3")
YEARS = timedelta(days=3650)
ATTEMPTS = 4
"""The attempts within the patience for a cluster that does not answer, after which it is skipped."""
HELM_RUNS = frozenset({"upgrade", "rollback", "uninstall"})
STARTING = HealthCheck(CheckKind.PODS, Evidence.UNKNOWN, "Progressing", "0 of 1 ready")
BUSY = HealthCheck(CheckKind.RESOURCES, Evidence.UNKNOWN, "TooManyRequests", "the API server answers 429")
STRATEGIES: tuple[RolloutStrategy, ...] = (
    CanaryStrategy(percentages=(30, 100), evaluation_period=MINUTE),
    RollingStrategy(validation_period=MINUTE),
    DirectStrategy(),
    BlueGreenStrategy("blue", "green", validation_period=MINUTE, monitoring_period=MINUTE),
)


class Troubles(msgspec.Struct, frozen=True):
    """The troubles of one run, all of which a healthy version survives."""

    strategy: RolloutStrategy
    slow: dict[str, timedelta]
    """The time that the pods of each cluster need to become ready, less than the patience of a gate."""
    away: str
    """The cluster that is out of reach for a while."""
    away_from: timedelta
    away_for: timedelta
    """Up to twice the patience with it: then it is skipped, or the deployment is paused and a person resumes it."""
    busy: frozenset[int]
    """The calls that get a 429, of any kind and on any cluster."""

    @classmethod
    def of(cls, run: int) -> Troubles:
        chance = random.Random(run)
        return cls(
            strategy=STRATEGIES[run % len(STRATEGIES)],
            slow={name: timedelta(seconds=chance.randint(0, 110)) for name in CLUSTERS},
            away=chance.choice(CLUSTERS),
            away_from=timedelta(seconds=chance.randint(1, 200)),
            away_for=timedelta(seconds=chance.randint(5, 2 * int(PATIENCE.total_seconds()))),
            busy=frozenset(chance.sample(range(120), 12)),
        )


class TroubledClusters(Interruption):
    """Troubles of a run, brought about in the calls of the engine."""

    def __init__(self, fleet: RolloutHarness, troubles: Troubles, digest: str) -> None:
        self._fleet = fleet
        self._troubles = troubles
        self._digest = digest
        self._began: datetime | None = None
        """The time of the first call after the plan: no plan is made of a cluster that is away."""
        self._started: dict[str, datetime] = {}
        self._calls = 0
        self._half_way = False
        self.seen: set[str] = set()
        """The kinds of trouble that the engine has met."""
        self.unanswered: Counter[str] = Counter()
        """The calls of each cluster that got no answer, or a 429."""

    async def on_call(self, call: str) -> None:
        name, _, act = call.partition(" ")
        self._calls += 1
        cluster = self._fleet.clusters[name]
        if self._began is None and act != "inspect":
            self._began = self._fleet.now
        since = self._fleet.now - (self._began or self._fleet.now) - self._troubles.away_from
        cluster.offline = name == self._troubles.away and timedelta() <= since < self._troubles.away_for
        if act in ("upgrade", "scale_up"):
            self._started[name] = self._fleet.now
        busy = self._calls in self._troubles.busy
        if cluster.offline:
            self.seen.add("away")
            self.unanswered[name] += 1
        elif act == "observe":
            self._observe(name, busy=busy)
        elif busy:
            self.seen.add("busy")
            if act not in HELM_RUNS:
                self.unanswered[name] += 1
                raise ClusterUnreachable(f"{name}: the API server answers 429")
            self._half_way = True

    @asynccontextmanager
    async def interrupt(self, call: str) -> AsyncIterator[Interruption]:
        """Cut a run of Helm off that meets a busy API server: its record is stored by then."""
        yield self

    async def cut_off(self) -> None:
        half_way, self._half_way = self._half_way, False
        if half_way:
            self.seen.add("busy half-way")
            await TooBusy().cut_off()

    def _observe(self, name: str, *, busy: bool) -> None:
        """Let the observation of a cluster see pods that are not ready yet, or nothing of its resources."""
        starting = self._fleet.now < self._started[name] + self._troubles.slow[name]
        self._fleet.clusters.findings.pop((name, self._digest), None)
        if starting or busy:
            self.seen.add("slow" if starting else "busy")
            self._fleet.clusters.findings[name, self._digest] = STARTING if starting else BUSY


@pytest.mark.timeout(1200)
async def test_no_healthy_version_is_rolled_back_whatever_happens_around_it(
    database: Database, sample: Sample | None, record_property: Callable[[str, object], None]
) -> None:
    fleet = RolloutHarness(database, *CLUSTERS)
    await fleet.register()
    runs = Sample(SAMPLED, seed=sample.seed).of(range(RUNS)) if sample else range(RUNS)
    seen: set[str] = set()
    paused = 0
    for number, run in enumerate(runs):
        version = ("2.0.0", "3.0.0")[number % 2]
        clusters = TroubledClusters(fleet, Troubles.of(run), VERSIONS[version])
        fleet.clusters.on_call, fleet.clusters.interrupt = clusters.on_call, clusters.interrupt
        paused += await _roll_out(fleet, clusters, Troubles.of(run).strategy, version, f"run {run}")
        seen |= clusters.seen
    assert seen == {"away", "slow", "busy", "busy half-way"} if sample is None else seen
    record_property(
        "sweep", f"{len(runs)} of {RUNS} healthy rollouts in trouble: none rolled back, {paused} pauses"
    )


async def _roll_out(
    fleet: RolloutHarness, troubled: TroubledClusters, strategy: RolloutStrategy, version: str, run: str
) -> int:
    """Roll a version out, and resume it whenever it is paused. Return how often it was."""
    before = {name: len(fleet.clusters[name].completed) for name in CLUSTERS}
    made = await fleet.create(strategy, version=version)
    pauses = 0

    async def resume() -> bool:
        nonlocal pauses
        if (await fleet.deployment(made.id)).phase is not DeploymentPhase.PAUSED:
            return False
        pauses += 1
        assert pauses < 10, run
        await fleet.deployments.resume(ADMIN, made.id)
        return True

    await fleet.run(act=resume, horizon=YEARS)
    phase = (await fleet.deployment(made.id)).phase
    targets = await fleet.targets(made.id)
    assert phase is DeploymentPhase.COMPLETED, f"{run}: {phase}, {targets}"
    for name, each in targets.items():
        skipped = each.reason == "Offline" and troubled.unanswered[name] >= ATTEMPTS
        assert each.state is TargetState.HEALTHY or skipped, f"{run}: {each}"
        assert each.progress.failed_checks == 0, f"{run}: {each}"
        acts = fleet.clusters[name].completed[before[name] :]
        assert not [act for act in acts if act.startswith("rollback")], f"{run}: {acts}"
    return pauses
