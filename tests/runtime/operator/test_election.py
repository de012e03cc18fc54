"""Leader election: at most one leader, and no write from a former one."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import pytest
from structlog.testing import capture_logs

from kapsa.devcluster.faults import Answer, Cut, Delay, Drop, FaultPlan, FaultRule
from kapsa.runtime import ClientError, Context, Informer, LeaderElection, Operator, WriteRefused
from kapsa.runtime.clock import SystemClock
from kapsa.runtime.testing import Harness
from tests.runtime.sample_app import App, Recorder, app, config_map

pytestmark = pytest.mark.virtual_time

LEASE = "coordination.k8s.io/v1/Lease"


def replica(work: Any = None, **attributes: Any) -> tuple[Operator, Recorder]:
    controller = Recorder(work, **attributes)
    return Operator(controllers=[controller], leader_election="lock"), controller


async def lease(harness: Harness) -> dict[str, Any]:
    spec: dict[str, Any] = (await harness.get(LEASE, "lock"))["spec"]
    return spec


async def test_one_replica_leads_and_the_other_keeps_its_caches_warm(harness: Harness) -> None:
    await harness.install(App)
    (first, working), (second, waiting) = replica(), replica()
    await harness.start(first, name="first")
    await harness.clock.sleep(1)
    standby = await harness.start(second, name="second")
    await harness.apply(app("a"))
    await harness.clock.sleep(60)
    assert (working.runs, waiting.runs) == (["a"], [])
    assert [each.name for each in standby.reconcilers[0].informers[0].store] == ["a"]
    assert "standing by, caches warm" in standby.health.report(standby.health.ready)[1]
    assert (await lease(harness))["leaseTransitions"] == 0


async def test_a_new_leader_reports_which_watches_it_waits_for_and_how_long(
    harness: Harness, faults: FaultPlan
) -> None:
    await harness.install(App)
    working, waiting = Recorder(owns=("v1/ConfigMap",)), Recorder(owns=("v1/ConfigMap",))
    await harness.start(Operator(controllers=[working], leader_election="lock"), name="first")
    await harness.clock.sleep(5)
    second = Operator(controllers=[waiting], leader_election="lock", debug_port=0)
    standby = await harness.start(second, name="second")
    await harness.clock.sleep(5)
    unreachable = faults.add(FaultRule(action=Drop(), resource="configmaps", client="second", times=0))
    faults.order(Cut(), resource="configmaps", client="second")
    with capture_logs() as logs:
        await harness.stop("first")
        await harness.clock.sleep(30)
        await harness.apply(app("a"))
        ready, report = standby.health.report(standby.health.ready)
        assert ready
        assert "controller app: waits for v1/ConfigMap to catch up" in report
        assert standby.inspection is not None
        (controller,) = standby.inspection.report().controllers
        assert controller.state == "waits for v1/ConfigMap to catch up"
        faults.remove(unreachable)
        await harness.clock.sleep(60)
    assert (working.runs, waiting.runs) == ([], ["a"])
    assert "controller app: working" in standby.health.report(standby.health.ready)[1]
    by_event = {each["event"]: each for each in logs}
    begin = by_event["controller waits for its watches to catch up"]
    assert begin["controller"] == "app"
    assert sorted(begin["watches"]) == ["example.com/v1/App", "v1/ConfigMap"]
    assert 30 < by_event["watches caught up"]["seconds"] < 90


async def test_a_leader_whose_watches_could_not_be_confirmed_tries_again(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.install(App)
    await harness.apply(app("a"))
    (first, _), (second, waiting) = replica(), replica()
    await harness.start(first, name="first")
    await harness.clock.sleep(5)
    await harness.start(second, name="second")
    await harness.clock.sleep(5)
    failures = iter([RuntimeError("unexpected")])
    refresh = Informer.refresh

    def fails_once(informer: Informer, since: float) -> None:
        if (failure := next(failures, None)) is not None:
            raise failure
        refresh(informer, since)

    monkeypatch.setattr(Informer, "refresh", fails_once)
    await harness.stop("first")
    await harness.clock.sleep(30)
    assert waiting.runs == ["a"]


async def test_a_lease_released_on_stop_is_taken_over_at_once(harness: Harness) -> None:
    await harness.install(App)
    await harness.apply(app("a"))
    (first, _), (second, waiting) = replica(), replica()
    await harness.start(first, name="first")
    await harness.clock.sleep(5)
    await harness.start(second, name="second")
    await harness.clock.sleep(5)
    await harness.stop("first")
    assert (await lease(harness))["holderIdentity"] == ""
    await harness.clock.sleep(3)
    assert waiting.runs == ["a"], "a new leader reconciles everything"
    assert (await lease(harness))["leaseTransitions"] == 1


async def test_a_lease_is_released_although_its_last_renewal_was_cancelled(
    harness: Harness, faults: FaultPlan
) -> None:
    await harness.install(App)
    operator, _ = replica()
    await harness.start(operator)
    await harness.clock.sleep(5)
    faults.add(FaultRule(action=Delay(30), verb="update", resource="leases", client="operator", when="after"))
    await harness.clock.sleep(2.5)
    await harness.stop()
    assert (await lease(harness))["holderIdentity"] == ""


async def test_a_crashed_leader_is_replaced_after_its_lease_has_expired(harness: Harness) -> None:
    await harness.install(App)
    await harness.apply(app("a"))
    (first, _), (second, waiting) = replica(), replica()
    await harness.start(first, name="first")
    await harness.clock.sleep(5)
    await harness.start(second, name="second")
    await harness.clock.sleep(5)
    await harness.kill("first")
    await harness.clock.sleep(12)
    assert waiting.runs == []
    await harness.clock.sleep(8)
    assert waiting.runs == ["a"]


async def test_no_write_leaves_a_partitioned_leader_after_its_deadline(
    harness: Harness, faults: FaultPlan
) -> None:
    """The old leader reaches the API server for everything but its lease: the worst kind of partition."""

    async def write(resource: App, ctx: Context[App]) -> Any:
        config = config_map(resource.name, data={"at": str(harness.clock.monotonic())})
        await ctx.apply(config)

    await harness.install(App)
    await harness.apply(app("a"))
    (first, old), (second, new) = (replica(write, owns=["v1/ConfigMap"], resync=0.5) for _ in range(2))
    await harness.start(first, name="first")
    await harness.clock.sleep(5)
    await harness.start(second, name="second")
    await harness.clock.sleep(5)
    cut_at = harness.clock.monotonic()
    faults.add(FaultRule(action=Drop(), resource="leases", client="first", times=0))
    writes: dict[str, list[float]] = {"first": [], "second": []}

    def note(recorded: Any) -> None:
        if recorded.call.writes and recorded.call.resource == "configmaps":
            writes[recorded.client].append(harness.clock.monotonic() - cut_at)

    harness.observers.append(note)
    await harness.clock.sleep(60)
    assert writes["first"], "it wrote until its deadline"
    assert max(writes["first"]) < 10.1
    assert min(writes["second"]) > max(writes["first"])
    runs = len(old.runs)
    await harness.clock.sleep(30)
    assert len(old.runs) == runs
    assert new.runs


async def test_a_task_left_behind_by_a_reconcile_writes_nothing_after_the_deadline(
    harness: Harness, faults: FaultPlan
) -> None:
    """A task that a reconcile left behind is not cancelled: only the gate keeps it from writing."""
    forgotten: list[asyncio.Task[None]] = []
    wrote_at: list[float] = []

    async def write_forever(ctx: Context[App]) -> None:
        while True:
            with contextlib.suppress(ClientError):
                await ctx.client.apply(
                    config_map("a", data={"at": str(harness.clock.monotonic())}), force=True
                )
                wrote_at.append(harness.clock.monotonic())
            await harness.clock.sleep(0.5)

    async def start_and_forget(resource: App, ctx: Context[App]) -> Any:
        forgotten.append(asyncio.create_task(write_forever(ctx)))

    await harness.install(App)
    await harness.apply(app("a"))
    operator, _ = replica(start_and_forget)
    await harness.start(operator, name="first")
    await harness.clock.sleep(5)
    cut_at = harness.clock.monotonic()
    faults.add(FaultRule(action=Drop(), resource="leases", client="first", times=0))
    await harness.clock.sleep(60)
    for task in forgotten:
        task.cancel()
    await asyncio.gather(*forgotten, return_exceptions=True)
    assert any(at > cut_at for at in wrote_at)
    assert max(wrote_at) - cut_at < 10.1


@pytest.mark.parametrize("rates", [(0.8, 1.0), (1.0, 1.25), (1.25, 0.9)])
async def test_clock_drift_never_leads_to_two_writers(
    harness: Harness, faults: FaultPlan, rates: tuple[float, float]
) -> None:
    async def write(resource: App, ctx: Context[App]) -> None:
        await ctx.apply(config_map(resource.name, data={"at": str(harness.clock.monotonic())}))

    await harness.install(App)
    await harness.apply(app("a"))
    last: list[tuple[str, float]] = []
    harness.observers.append(
        lambda each: (
            last.append((each.client, harness.clock.monotonic()))
            if each.call.resource == "configmaps" and each.call.writes and each.status
            else None
        )
    )
    for name, rate in zip(("first", "second"), rates, strict=True):
        operator, _ = replica(write, owns=["v1/ConfigMap"], resync=0.5)
        await harness.start(operator, name=name, clock_rate=rate)
        await harness.clock.sleep(5)
    faults.add(FaultRule(action=Drop(), resource="leases", client="first", times=0))
    await harness.clock.sleep(60)
    names = [name for name, _ in last]
    assert names == sorted(names), "all writes of the first replica came before those of the second"
    assert set(names) == {"first", "second"}


async def test_the_gate_closes_exactly_at_the_deadline(harness: Harness, faults: FaultPlan) -> None:
    await harness.install(App)
    operator, _ = replica()
    run = await harness.start(operator, name="first")
    await harness.clock.sleep(5)
    assert run.elector is not None
    faults.add(FaultRule(action=Drop(), resource="leases", client="first", times=0))
    left = run.elector.gate()
    assert left is not None
    await harness.clock.sleep(left - 0.01)
    assert run.elector.is_leader
    await harness.clock.sleep(0.02)
    with pytest.raises(WriteRefused, match="does not hold the lease default/lock"):
        await run.client.create(config_map("x"), namespace="default")
    assert await harness.get("v1/ConfigMap", "x") is None


async def test_a_short_outage_keeps_the_leader(harness: Harness, faults: FaultPlan) -> None:
    await harness.install(App)
    (first, working), (second, waiting) = replica(), replica()
    await harness.start(first, name="first")
    await harness.clock.sleep(5)
    await harness.start(second, name="second")
    rule = faults.add(FaultRule(action=Drop(), resource="leases", client="first", times=0))
    await harness.clock.sleep(6)
    assert rule.fired > 1
    faults.clear()
    await harness.clock.sleep(60)
    await harness.apply(app("a"))
    await harness.clock.sleep(5)
    assert (working.runs, waiting.runs) == (["a"], [])
    assert (await lease(harness))["leaseTransitions"] == 0


async def test_answers_that_are_no_lease_end_the_tenure_in_time_and_not_the_campaign(
    harness: Harness, faults: FaultPlan
) -> None:
    await harness.install(App)
    operator, controller = replica()
    run = await harness.start(operator, name="first")
    await harness.clock.sleep(5)
    assert run.elector is not None
    faults.add(FaultRule(action=Answer(code=200), resource="leases", client="first", times=0))
    left = run.elector.gate()
    assert left is not None
    await harness.clock.sleep(left + 0.01)
    with pytest.raises(WriteRefused, match="does not hold the lease default/lock"):
        await run.client.create(config_map("x"), namespace="default")
    await harness.apply(app("a"))
    await harness.clock.sleep(60)
    assert controller.runs == []
    ready, report = run.health.report(run.health.ready)
    assert not ready
    assert "cannot take the lease: KeyError: 'resourceVersion'" in report
    faults.clear()
    await harness.clock.sleep(30)
    assert controller.runs == ["a"]
    assert run.health.report(run.health.ready)[0]


async def test_an_operator_stops_although_the_answer_to_its_release_is_no_lease(
    harness: Harness, faults: FaultPlan
) -> None:
    await harness.install(App)
    operator, _ = replica()
    await harness.start(operator, name="first")
    await harness.clock.sleep(5)
    faults.add(
        FaultRule(
            action=Answer(code=409, reason="Conflict"), verb="update", resource="leases", client="first"
        )
    )
    faults.add(FaultRule(action=Answer(code=200), verb="get", resource="leases", client="first", times=0))
    with capture_logs() as logs:
        await harness.stop("first")
    assert [each["event"] for each in logs if each["log_level"] == "error"] == [
        "lease not released; other replicas wait until it expires"
    ]


async def test_a_leader_that_lost_stands_by_and_can_lead_again(harness: Harness, faults: FaultPlan) -> None:
    await harness.install(App)
    await harness.apply(app("a"))
    operator, controller = replica()
    await harness.start(operator, name="first")
    await harness.clock.sleep(5)
    faults.add(FaultRule(action=Drop(), resource="leases", client="first", times=0))
    await harness.clock.sleep(30)
    faults.clear()
    await harness.apply(app("b"))
    await harness.clock.sleep(30)
    assert sorted(controller.runs) == ["a", "a", "b"]


async def test_a_leader_that_reads_another_holder_stops_writing_at_once(harness: Harness) -> None:
    await harness.install(App)
    operator, _ = replica()
    run = await harness.start(operator)
    await harness.clock.sleep(5)
    assert run.elector is not None
    assert run.elector.is_leader
    await harness.client.patch(
        LEASE, "lock", {"spec": {"holderIdentity": "other"}}, type="merge", namespace="default"
    )
    await harness.clock.sleep(3)  # the next renewal, not the deadline of the last one
    assert not run.elector.is_leader


@pytest.mark.parametrize("removal", ["deleted", "vacated"])
async def test_a_lease_that_was_removed_is_not_taken_while_its_holder_may_still_write(
    harness: Harness, faults: FaultPlan, removal: str
) -> None:
    await harness.install(App)
    (first, _), (second, _) = replica(), replica()
    old = await harness.start(first, name="first")
    await harness.clock.sleep(5)
    new = await harness.start(second, name="second")
    await harness.clock.sleep(5)
    assert old.elector is not None
    assert new.elector is not None
    faults.add(FaultRule(action=Drop(), resource="leases", client="first", times=0))
    if removal == "deleted":
        await harness.client.delete(LEASE, "lock", namespace="default")
    else:
        vacant = {"spec": {"holderIdentity": ""}}
        await harness.client.patch(LEASE, "lock", vacant, type="merge", namespace="default")
    for _ in range(120):
        await harness.clock.sleep(0.25)
        assert not (old.elector.is_leader and new.elector.is_leader)
    assert new.elector.is_leader


async def test_a_leader_whose_lease_was_deleted_creates_it_again_and_goes_on(harness: Harness) -> None:
    await harness.install(App)
    (first, _), (second, _) = replica(), replica()
    run = await harness.start(first, name="first")
    await harness.clock.sleep(5)
    await harness.start(second, name="second")
    await harness.clock.sleep(5)
    assert run.elector is not None
    await harness.client.delete(LEASE, "lock", namespace="default")
    for _ in range(40):
        await harness.clock.sleep(0.5)
        assert run.elector.is_leader
    assert (await lease(harness))["holderIdentity"] == run.identity


async def test_a_lost_lease_is_not_taken_again_before_the_runs_under_it_have_ended(
    harness: Harness, faults: FaultPlan
) -> None:
    ended = asyncio.Event()

    async def stubborn(resource: App, ctx: Context[App]) -> None:
        while not ended.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await ended.wait()

    await harness.install(App)
    await harness.apply(app("a"))
    operator, _ = replica(stubborn, reconcile_timeout=None)
    run = await harness.start(operator)
    await harness.clock.sleep(5)
    assert run.elector is not None
    faults.add(FaultRule(action=Drop(), resource="leases", client="operator", times=0))
    await harness.clock.sleep(15)
    assert not run.elector.is_leader
    faults.clear()
    await harness.clock.sleep(30)
    assert not run.elector.is_leader
    assert "has not ended" in run.health.report(run.health.ready)[1]
    ended.set()
    await harness.clock.sleep(5)
    assert run.elector.is_leader


def test_the_time_that_a_machine_is_suspended_counts_for_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SystemClock()
    read = time.clock_gettime
    before = clock.monotonic()
    # A suspended machine stops CLOCK_MONOTONIC, not CLOCK_BOOTTIME.
    asleep = {time.CLOCK_BOOTTIME: 3600.0}
    monkeypatch.setattr(time, "clock_gettime", lambda clock_id: read(clock_id) + asleep.get(clock_id, 0.0))
    assert clock.monotonic() - before >= 3600


def test_inconsistent_durations_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"retry_period \* 1.2 < renew_deadline < lease_duration"):
        LeaderElection(name="lock", lease_duration=10, renew_deadline=10)
