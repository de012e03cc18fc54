"""Managers and Helm runs that are killed, stopped and resumed, with the real binary."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import text

from kapsa.adapters.process import limited_process
from kapsa.devcluster import DevCluster, FaultPlan
from kapsa.fleet.domain.rollout.deployments import DeploymentPhase
from kapsa.fleet.domain.rollout.releases import HelmStatus, latest_record
from kapsa.fleet.domain.rollout.strategies import DirectStrategy
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.orchestrator.ports.leases import LeaseLost
from kapsa.runtime import Response
from kapsa.runtime.testing import Sample
from kapsa.runtime.testing._sweep_report import run_points
from tests.eventually import eventually
from tests.fleet.crash_points import CrashMoment
from tests.fleet.examples import ADMIN, cluster_id
from tests.fleet.infrastructure.helm.rollout_on_cluster import (
    NAME,
    KillPoint,
    RevisionPoint,
    RolloutOnCluster,
)
from tests.fleet.real_helm import (
    CLUSTER,
    ApiWrite,
    RealHelm,
    failure,
    helm_processes,
    kill_helm,
    lease,
    real_helm,
)
from tests.fleet.rollout_harness import NEW, RELEASE

pytestmark = pytest.mark.sampled(6, of="module")


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


@pytest.mark.always
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
    assert report.points == (scenario.sampled if chosen else report.total) > 0, "a sweep without its points"
    assert not report.failures, str(report)


@pytest.mark.always
def test_a_quick_run_kills_at_twelve_points_or_more() -> None:
    assert sum(scenario.sampled for scenario in SCENARIOS.values()) >= 12


LEASE = 2.0


@pytest.mark.always
@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL], ids=lambda number: number.name)
async def test_a_manager_that_slept_past_its_lease_or_died_writes_nothing_more_and_neither_does_its_helm(
    number: signal.Signals, tmp_path: Path
) -> None:
    requests = FaultPlan()
    async with DevCluster(tls=True, faults=requests) as cluster, real_helm(cluster) as other:
        path = tmp_path / "kubeconfig"
        path.write_text(json.dumps(cluster.kubeconfig_data))
        manager = await start_manager(path, other.namespace, number)
        assert manager.stdout is not None
        helm = json.loads(await manager.stdout.readline())
        await asyncio.sleep(LEASE + 0.1)
        pending = latest_record(await other.helm.history(CLUSTER, other.release()))
        assert pending is not None
        assert pending.status is HelmStatus.PENDING_INSTALL
        await other.helm.remove_pending(CLUSTER, other.release(), pending, lease())
        assert await other.upgrade() == 1
        before = [record for record in requests.records if record.is_write]
        if number is signal.SIGSTOP:
            assert [each for each in helm if is_running(each)], "helm waits for the gate"
            os.kill(manager.pid, signal.SIGCONT)
            assert (await manager.stdout.readline()).decode().strip() == "LeaseLost"
        await manager.wait()
        await eventually(lambda: _running(helm), lambda running: not running, "helm ends without its gate")
        assert [record for record in requests.records if record.is_write] == before
        assert await other.states() == [(1, "deployed")]


async def _running(pids: list[int]) -> list[int]:
    return [pid for pid in pids if is_running(pid)]


def is_running(pid: int) -> bool:
    """Return whether a process exists and is not only waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


async def start_manager(
    kubeconfig: Path, namespace: str, number: signal.Signals
) -> asyncio.subprocess.Process:
    module = "tests.fleet.infrastructure.helm.manager_process"
    arguments = ["-m", module, str(kubeconfig), namespace, str(LEASE), number.name]
    return await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)


async def test_a_helm_that_is_stopped_is_ended_when_the_lease_lapses(helm: RealHelm) -> None:
    stopped: list[int] = []
    guard = lease()

    async def stop(write: ApiWrite) -> None:
        if write.to_history and write.answered:
            helm.transport.tamper = None
            stopped.extend(helm_processes())
            for each in stopped:
                os.kill(each, signal.SIGSTOP)
            guard.extend(time.monotonic() + 0.2)

    helm.transport.tamper = stop
    with pytest.raises(LeaseLost):
        await helm.helm.upgrade(helm.request(), guard)
    assert stopped
    assert not any(is_running(each) for each in stopped)
    assert await helm.states() == [(1, "pending-install")]


async def test_a_helm_that_something_else_killed_is_run_again(database: Database, helm: RealHelm) -> None:
    fleet, made = await fleet_on(database, helm, SCENARIOS["upgrade"])

    async def kill(write: ApiWrite) -> None:
        if not write.to_history:
            helm.transport.tamper = None
            assert kill_helm() == 1

    helm.transport.tamper = kill
    await fleet.fleet.run(fleet.engine)
    outcome = await fleet.outcome(made)
    assert outcome["phase"] is DeploymentPhase.COMPLETED
    assert outcome["history"] == [(1, "superseded", "1.0.0"), (2, "deployed", "2.0.0")]


@pytest.mark.parametrize("name", ["upgrade", "rollback"])
async def test_a_manager_that_cannot_start_helm_for_a_while_neither_fails_nor_withdraws_a_version(
    database: Database, helm: RealHelm, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = SCENARIOS[name]
    fleet, made = await fleet_on(database, helm, scenario)
    start, refusals = subprocess.Popen, [1, 2]

    def exhausted(command: Any, **options: Any) -> Any:
        if name in command and refusals:
            refusals.pop()
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return start(command, **options)

    monkeypatch.setattr(limited_process.subprocess, "Popen", exhausted)
    await fleet.fleet.run(fleet.engine)
    assert not refusals
    assert (await fleet.outcome(made))["phase"] is scenario.end
    assert await withdrawn(database) == ({"2.0.0"} if name == "rollback" else set())


async def test_a_rollout_pauses_with_the_reason_if_helm_cannot_be_started_at_all(
    database: Database, helm: RealHelm, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, made = await fleet_on(database, helm, SCENARIOS["upgrade"])
    start = subprocess.Popen

    def exhausted(command: Any, **options: Any) -> Any:
        if "upgrade" in command:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return start(command, **options)

    monkeypatch.setattr(limited_process.subprocess, "Popen", exhausted)
    await fleet.fleet.run(fleet.engine)
    target = (await fleet.fleet.targets(made.id))[NAME]
    assert target.reason == "HelmInterrupted"
    assert "helm cannot be started: Too many open files" in target.stalled
    assert (await fleet.fleet.deployment(made.id)).phase is DeploymentPhase.PAUSED
    assert await withdrawn(database) == set()


class BusyTime(msgspec.Struct, frozen=True):
    """A time in which an API server answers the objects of a release with a status, from the first of a run on."""

    status: int
    answers: int = 0
    """The number of such answers; without one the time counts."""
    seconds: float = 0.0
    retry_after: str = ""

    def __str__(self) -> str:
        return f"{self.status} for {f'{self.seconds:g} s' if self.seconds else f'{self.answers} answers'}"

    @property
    def reply(self) -> Response:
        return failure(
            self.status, "too many requests", {"retry-after": self.retry_after} if self.retry_after else {}
        )


class BusyServer:
    """An API server that is busy while a run of Helm writes, the first of a deployment or its rollback."""

    def __init__(self, busy: BusyTime, *, rollback: bool) -> None:
        self._busy = busy
        self._records = 2 if rollback else 1
        """The new revisions to the one of the run."""
        self._began = 0.0
        self.answers = 0

    async def tamper(self, write: ApiWrite) -> Response | None:
        if write.answered:
            return None
        if write.to_history:
            self._records -= write.method == "POST"
            return None
        if self._records > 0:
            return None
        self._began = self._began or time.monotonic()
        over = time.monotonic() - self._began >= self._busy.seconds
        if (self.answers >= self._busy.answers) if self._busy.answers else over:
            return None
        self.answers += 1
        return self._busy.reply


BUSY = (
    BusyTime(429, 2, retry_after="120"),
    BusyTime(503, 3),
    BusyTime(504, 1),
)
LONG = (BusyTime(429, seconds=12.0), BusyTime(429, seconds=40.0))


@pytest.mark.parametrize("name", ["upgrade", "rollback"])
@pytest.mark.parametrize(
    "busy", [*BUSY, *(pytest.param(each, marks=pytest.mark.long) for each in LONG)], ids=str
)
async def test_a_busy_api_server_neither_fails_nor_withdraws_a_version(
    database: Database, helm: RealHelm, name: str, busy: BusyTime
) -> None:
    scenario = SCENARIOS[name]
    fleet, made = await fleet_on(database, helm, scenario)
    server = BusyServer(busy, rollback=name == "rollback")
    helm.transport.tamper = server.tamper
    await fleet.fleet.run(fleet.engine)
    helm.transport.tamper = None
    assert server.answers >= (busy.answers or 2)
    outcome = await fleet.outcome(made)
    assert outcome["phase"] is scenario.end
    history = [status for _, status, _ in outcome["history"]]
    assert history == [*["superseded"] * (2 if name == "rollback" else 1), "deployed"]
    assert await withdrawn(database) == ({"2.0.0"} if name == "rollback" else set())


@pytest.mark.long
async def test_a_rollout_pauses_on_an_api_server_that_stays_busy_and_goes_on_when_it_is_resumed(
    database: Database, helm: RealHelm
) -> None:
    fleet, made = await fleet_on(database, helm, SCENARIOS["upgrade"])
    helm.transport.tamper = BusyServer(BusyTime(503, 1000), rollback=False).tamper
    await fleet.fleet.run(fleet.engine)
    helm.transport.tamper = None
    deployment = await fleet.fleet.deployment(made.id)
    assert deployment.phase is DeploymentPhase.PAUSED
    assert "the API server answered 503: too many requests" in deployment.message
    assert await withdrawn(database) == set()
    await fleet.fleet.deployments.resume(ADMIN, made.id)
    await fleet.fleet.run(fleet.engine)
    outcome = await fleet.outcome(made)
    assert outcome["phase"] is DeploymentPhase.COMPLETED
    assert outcome["history"] == [(1, "superseded", "1.0.0"), (2, "deployed", "2.0.0")]


@pytest.mark.long
async def test_a_rollback_that_a_busy_api_server_has_failed_is_made_again_when_a_person_asks(
    database: Database, helm: RealHelm
) -> None:
    fleet, made = await fleet_on(database, helm, SCENARIOS["rollback"])
    helm.transport.tamper = BusyServer(BusyTime(503, 1000), rollback=True).tamper
    await fleet.fleet.run(fleet.engine)
    helm.transport.tamper = None
    outcome = await fleet.outcome(made)
    assert outcome["phase"] is DeploymentPhase.FAILED
    assert outcome["history"][-1] == (3, "pending-rollback", "1.0.0")
    await fleet.fleet.deployments.rollback(ADMIN, made.id, reason="the API server is not busy any more")
    await fleet.fleet.run(fleet.engine)
    outcome = await fleet.outcome(made)
    assert outcome["phase"] is DeploymentPhase.ROLLED_BACK
    assert outcome["history"] == [
        (1, "superseded", "1.0.0"),
        (2, "superseded", "2.0.0"),
        (3, "deployed", "1.0.0"),
    ]


async def withdrawn(database: Database) -> set[str]:
    """Return the versions that are withdrawn."""
    statement = text("SELECT version FROM fleet.operator_version WHERE withdrawn_reason <> ''")
    async with database.transaction() as connection:
        return set((await connection.execute(statement)).scalars())


class PendingRelease(msgspec.Struct, frozen=True):
    """A revision that a dead Helm left pending, and the history that its recovery leaves."""

    scenario: KillScenario
    number: int
    """Counts the new revisions of the run up to it."""
    recovered: tuple[str, ...]


PENDING = {
    HelmStatus.PENDING_INSTALL: PendingRelease(
        KillScenario(DeploymentPhase.COMPLETED, installed=False), 1, ("deployed",)
    ),
    HelmStatus.PENDING_UPGRADE: PendingRelease(
        KillScenario(DeploymentPhase.COMPLETED), 1, ("superseded", "deployed")
    ),
    HelmStatus.PENDING_ROLLBACK: PendingRelease(
        KillScenario(DeploymentPhase.ROLLED_BACK, unhealthy=NEW), 2, ("superseded", "superseded", "deployed")
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("status", PENDING)
async def test_a_pending_release_of_ours_is_recovered_and_leaves_one_revision(
    database: Database, helm: RealHelm, status: HelmStatus
) -> None:
    pending = PENDING[status]
    fleet, made = await fleet_on(database, helm, pending.scenario)
    left: list[HelmStatus] = []

    async def look() -> None:
        left.extend(each.status for each in await helm.helm.history(cluster_id(NAME), RELEASE))

    await fleet.run(made, RevisionPoint(pending.number), look)
    assert left[-1] is status
    outcome = await fleet.outcome(made)
    assert outcome["phase"] is pending.scenario.end
    assert [(revision, word) for revision, word, _ in outcome["history"]] == list(
        enumerate(pending.recovered, start=1)
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize("status", PENDING)
async def test_a_pending_release_of_somebody_else_is_left_alone_and_reported(
    database: Database, helm: RealHelm, status: HelmStatus
) -> None:
    fleet = RolloutOnCluster(database, helm)
    await fleet.prepare(installed=status is not HelmStatus.PENDING_INSTALL)
    await fleet.leave_pending_by_hand(status)
    before = await helm.helm.history(cluster_id(NAME), RELEASE)
    assert before[-1].status is status
    made = await fleet.fleet.create(DirectStrategy())
    await fleet.fleet.run(fleet.engine)
    target = (await fleet.fleet.targets(made.id))[NAME]
    assert f"revision {before[-1].revision} of operators/cert-manager is {status}" in target.stalled
    assert (await fleet.fleet.deployment(made.id)).phase is DeploymentPhase.PAUSED
    assert await helm.helm.history(cluster_id(NAME), RELEASE) == before
