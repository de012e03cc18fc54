"""The judgement of each part of an operator, from facts alone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kapsa.fleet.domain.health import CheckKind, Evidence, HealthCheck, OperatorHealth
from kapsa.fleet.domain.health.judgement import OperatorFacts, judge_operator
from kapsa.fleet.domain.health.leases import LeaseFacts
from kapsa.fleet.domain.health.memory import (
    HealthLimits,
    HealthMemory,
    ResourceBaseline,
    interrupt,
    limits_for,
)
from kapsa.fleet.domain.health.resources import (
    KindFacts,
    PendingResource,
    ResourceState,
    baseline_of,
    last_writes,
)
from kapsa.fleet.domain.health.webhooks import ProbeFacts, ProbeOutcome
from kapsa.fleet.domain.health.workloads import ContainerFacts, PodFacts, WorkloadFacts
from tests.fleet.examples import START

H, F, U = Evidence.HEALTHY, Evidence.FAILING, Evidence.UNKNOWN
TICK = timedelta(seconds=30)


class Readings:
    """Readings in a row, each with the memory of the one before."""

    def __init__(self, baseline: ResourceBaseline | None = None) -> None:
        self.now = START
        self.memory = HealthMemory()
        self.baseline = baseline

    def read(self, *, revision: int = 2, after: timedelta = TICK, **facts: Any) -> OperatorHealth:
        self.now += after
        health, self.memory = judge_operator(
            OperatorFacts(revision, "sha256:chart", **facts),
            self.memory,
            self.baseline,
            HealthLimits(),
            self.now,
        )
        return health

    def fail(self, after: timedelta = timedelta()) -> None:
        """Let a reading fail as a whole."""
        self.now += after
        self.memory = interrupt(self.memory, self.now)


def workload(*pods: PodFacts, **fields: Any) -> tuple[WorkloadFacts, ...]:
    return (WorkloadFacts("Deployment", "manager", "operators", pods=pods, **fields),)


def pod(ready: bool = True, new: bool = True, **container: Any) -> PodFacts:
    return PodFacts("uid-1", "manager-1", ready, new, (ContainerFacts("manager", **container),))


def kind(total: int, *states: ResourceState, reported: int = 1) -> tuple[KindFacts, ...]:
    pending = (PendingResource(f"uid-{index}", f"w{index}", state) for index, state in enumerate(states))
    return (KindFacts("Widget", total, reported, tuple(pending)),)


def check_of(health: OperatorHealth, kind: CheckKind) -> HealthCheck:
    return next(check for check in health.checks if check.kind is kind)


@pytest.mark.parametrize(
    ("workloads", "evidence", "reason"),
    [
        ((), H, "NoWorkloads"),
        (workload(pod()), H, "Passed"),
        (workload(), U, "NotReady"),
        (workload(pod(ready=False)), U, "NotReady"),
        (workload(pod(), desired=2), U, "NotReady"),
        (workload(desired=0), U, "NoPods"),
        (workload(pod(), observed=False), U, "NotObserved"),
        (workload(exists=False), F, "WorkloadMissing"),
        (workload(failure="ProgressDeadlineExceeded"), F, "ProgressDeadlineExceeded"),
        (workload(pod(ready=False, waiting="ErrImagePull")), F, "ErrImagePull"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_pods_pass_only_when_all_are_ready_at_the_current_template(
    workloads: tuple[WorkloadFacts, ...], evidence: Evidence, reason: str
) -> None:
    check = check_of(Readings().read(workloads=workloads), CheckKind.PODS)
    assert (check.evidence, check.reason, check.conclusive) == (evidence, reason, False)


def test_a_version_without_a_controller_is_unknown_if_the_one_before_had_one() -> None:
    for before, evidence, reason in ((True, U, "ControllersGone"), (False, H, "NoWorkloads")):
        readings = Readings(ResourceBaseline(START, controllers=before))
        check = check_of(readings.read(), CheckKind.PODS)
        assert (check.evidence, check.reason) == (evidence, reason)


@pytest.mark.parametrize(
    ("container", "reason", "conclusive"),
    [
        ({"waiting": "CrashLoopBackOff", "restarts": 1}, "CrashLoopBackOff", False),
        ({"waiting": "CrashLoopBackOff", "restarts": 3}, "CrashLoopBackOff", True),
        ({"waiting": "ImagePullBackOff"}, "ImagePullBackOff", True),
        ({"ended": "OOMKilled", "restarts": 1}, "OOMKilled", True),
    ],
    ids=["first crash", "third crash", "image", "memory"],
)
def test_a_crash_loop_a_missing_image_and_a_lack_of_memory_need_no_repetition(
    container: dict[str, Any], reason: str, conclusive: bool
) -> None:
    health = Readings().read(workloads=workload(pod(ready=False, **container)))
    check = check_of(health, CheckKind.PODS)
    assert (check.evidence, check.reason, check.conclusive) == (F, reason, conclusive)


def test_restarts_count_within_five_minutes_and_old_ones_are_forgotten() -> None:
    readings = Readings()
    assert readings.read(workloads=workload(pod(new=False, restarts=40, ended="OOMKilled"))).evidence is H
    assert readings.read(workloads=workload(pod(restarts=42))).evidence is H
    assert (
        check_of(readings.read(workloads=workload(pod(restarts=43))), CheckKind.PODS).reason == "RestartLoop"
    )
    assert readings.read(workloads=workload(pod(restarts=43))).evidence is F
    assert readings.read(workloads=workload(pod(restarts=43)), after=timedelta(minutes=6)).evidence is H


def test_a_share_of_five_percent_fails_and_less_does_not() -> None:
    failed = ResourceState.FAILED
    assert Readings().read(kinds=kind(21, failed)).evidence is H
    check = check_of(Readings().read(kinds=kind(20, failed)), CheckKind.RESOURCES)
    assert (check.evidence, check.reason) == (F, "ResourcesFailing")


def test_a_small_kind_is_not_hidden_by_a_large_one() -> None:
    large, small = kind(100_000)[0], kind(10, ResourceState.FAILED)[0]
    assert Readings().read(kinds=(large, small)).evidence is F


def test_resources_in_progress_are_unknown_until_they_take_too_long() -> None:
    readings, lagging = Readings(), kind(4, ResourceState.LAGGING)
    evidence = [readings.read(kinds=lagging).evidence for _ in range(5)]
    assert evidence == [U, U, U, U, F]
    assert check_of(readings.read(kinds=lagging), CheckKind.RESOURCES).reason == "NotReconciled"
    assert readings.read(kinds=kind(4)).evidence is H
    assert readings.read(kinds=lagging).evidence is U


def test_resources_that_take_turns_in_progress_never_fail() -> None:
    readings = Readings()
    for number in range(20):
        busy = PendingResource(f"uid-{number}", f"w{number}", ResourceState.IN_PROGRESS)
        assert readings.read(kinds=(KindFacts("Widget", 10, 10, (busy,)),)).evidence is U


def test_a_new_revision_gets_the_whole_patience_again() -> None:
    readings, lagging = Readings(), kind(4, ResourceState.LAGGING)
    for _ in range(5):
        readings.read(kinds=lagging)
    assert readings.read(kinds=lagging, revision=3).evidence is U


def test_a_baseline_exempts_what_failed_before_and_nothing_else() -> None:
    broken = kind(10, ResourceState.FAILED, ResourceState.FAILED)
    readings = Readings(baseline_of(broken, START))
    assert readings.read(kinds=broken).evidence is H
    assert readings.read(kinds=kind(10, *[ResourceState.FAILED] * 3)).evidence is F


def test_a_resource_without_status_counts_only_if_its_controller_writes_them() -> None:
    untouched = ResourceState.UNTOUCHED
    silent, readings = Readings(), Readings()
    for _ in range(6):
        quiet = silent.read(kinds=kind(4, *[untouched] * 4, reported=0))
        loud = readings.read(kinds=kind(4, untouched, reported=3))
    assert (quiet.evidence, loud.evidence) == (H, F)


def test_resources_say_whether_a_status_was_written_since_the_pods_became_ready() -> None:
    readings, running = Readings(), workload(pod())

    def proof(written: str, *pods: PodFacts, revision: int = 2) -> str:
        kinds = (KindFacts("Widget", 4, 4, (), (f"2026-01-01T00:00:{written}Z",)),)
        health = readings.read(workloads=workload(*pods) if pods else running, kinds=kinds, revision=revision)
        return check_of(health, CheckKind.RESOURCES).message.partition("; ")[2]

    none, some = (
        f"{word} status was written since the pods of this revision became ready" for word in ("no", "a")
    )
    assert [proof("01", pod(ready=False)), proof("02"), proof("02")] == [none] * 3
    assert [proof("03"), proof("03")] == [some] * 2
    assert proof("03", revision=3) == none


def test_one_change_that_is_ignored_is_unknown_until_any_status_is_written() -> None:
    readings, running = Readings(baseline_of((), START)), workload(pod())
    lagging = PendingResource("uid-1", "w1", ResourceState.LAGGING)

    def read(written: str) -> HealthCheck:
        kinds = (KindFacts("Widget", 1000, 1000, (lagging,), (f"2026-01-01T00:00:{written}Z",)),)
        return check_of(readings.read(workloads=running, kinds=kinds), CheckKind.RESOURCES)

    checks = [read("01") for _ in range(6)]
    assert [check.evidence for check in checks] == [H, H, H, H, U, U]
    assert checks[-1].reason == "NoReconciliation"
    assert "w1 is not reconciled" in checks[-1].message
    assert read("02").evidence is H


def test_a_change_that_is_ignored_does_not_stand_in_for_resources_in_progress() -> None:
    readings, times = Readings(baseline_of((), START)), ("2026-01-01T00:00:01Z",)
    ignored = KindFacts("Widget", 1000, 1000, (PendingResource("uid-1", "w1", ResourceState.LAGGING),), times)
    for _ in range(6):
        readings.read(workloads=workload(pod()), kinds=(ignored,))
    busy = KindFacts("Gadget", 1, 1, (PendingResource("uid-2", "g1", ResourceState.IN_PROGRESS),), times)
    health = readings.read(workloads=workload(pod()), kinds=(ignored, busy))
    assert check_of(health, CheckKind.RESOURCES).reason == "ResourcesInProgress"


@pytest.mark.parametrize("others", [2, 500], ids=["few", "many"])
def test_a_time_that_a_tenant_has_made_up_hides_no_later_write_of_a_status(others: int) -> None:
    readings, running = Readings(baseline_of((), START)), workload(pod())
    lagging = PendingResource("uid-1", "w1", ResourceState.LAGGING)
    times = [f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z" for number in range(others)]

    def read(*writes: str) -> Evidence:
        kinds = (KindFacts("Widget", 1000, 1000, (lagging,), last_writes(["2099-01-01T00:00:00Z", *writes])),)
        return check_of(readings.read(workloads=running, kinds=kinds), CheckKind.RESOURCES).evidence

    assert [read(*times) for _ in range(6)] == [H, H, H, H, U, U]
    assert read(*times[1:]) is U, "a resource was deleted"
    assert read(*times[:-1], "2026-01-01T09:00:00Z") is H


def lease(renewed: str, *, current: bool = True, fresh: bool = False) -> tuple[LeaseFacts, ...]:
    return (LeaseFacts("operators/leader", "manager-1_x", current, renewed, timedelta(seconds=15), fresh),)


def test_a_lease_is_judged_by_its_changes_and_not_by_the_clock_of_the_cluster() -> None:
    readings = Readings()
    assert readings.read(leases=lease("1999")).evidence is U
    assert readings.read(leases=lease("1999:30")).evidence is H
    assert readings.read(leases=lease("1999:30"), after=timedelta(seconds=5)).evidence is H
    assert readings.read(leases=lease("1999:30")).evidence is U
    stopped = readings.read(leases=lease("1999:30"))
    assert check_of(stopped, CheckKind.LEASE).reason == "LeaseNotRenewed"


@pytest.mark.parametrize("minutes", [0.5, 1, 10])
def test_an_outage_of_the_api_server_is_not_counted_as_a_missing_lease(minutes: float) -> None:
    readings = Readings()
    readings.read(leases=lease("1", fresh=True))
    readings.fail()
    back = check_of(
        readings.read(leases=lease("1"), after=timedelta(minutes=minutes) + TICK), CheckKind.LEASE
    )
    assert (back.evidence, back.reason) == (U, "LeaseNotProven"), "and the old renewal proves nothing"
    assert readings.read(leases=lease("2")).evidence is H
    readings.read(leases=lease("2"))
    assert check_of(readings.read(leases=lease("2")), CheckKind.LEASE).reason == "LeaseNotRenewed"


def test_a_controller_that_does_not_come_back_after_an_outage_fails_in_the_usual_time() -> None:
    readings = Readings()
    readings.read(leases=lease("1", fresh=True))
    readings.fail()
    evidence = [readings.read(leases=lease("1"), after=timedelta(minutes=5)).evidence]
    evidence += [readings.read(leases=lease("1")).evidence for _ in range(2)]
    assert evidence == [U, U, F]


def test_readings_that_are_far_apart_say_nothing_about_the_time_between_them() -> None:
    readings = Readings()
    readings.read(leases=lease("1", fresh=True))
    assert readings.read(leases=lease("1"), after=timedelta(minutes=11)).evidence is U


def test_a_reading_that_is_not_whole_does_not_count_against_a_lease_or_a_resource() -> None:
    readings = Readings()
    changed = kind(20, *[ResourceState.IN_PROGRESS] * 5)
    readings.read(leases=lease("1", fresh=True), kinds=changed)
    refused = [
        HealthCheck(each, U, "TooManyRequests", "429") for each in (CheckKind.PODS, CheckKind.RESOURCES)
    ]
    for _ in range(6):
        assert readings.read(unread=tuple(refused)).evidence is U
    back = readings.read(leases=lease("1"), kinds=changed)
    assert F not in {check.evidence for check in back.checks}, back
    for _ in range(4):
        back = readings.read(leases=lease("2"), kinds=changed)
    assert check_of(back, CheckKind.RESOURCES).evidence is F


def test_resources_that_can_never_be_read_do_not_excuse_a_lease() -> None:
    readings = Readings()
    readings.read(leases=lease("1", fresh=True), kinds=kind(20))
    forbidden = (HealthCheck(CheckKind.RESOURCES, U, "Forbidden", "403"),)
    reasons = [
        check_of(readings.read(leases=lease("1"), unread=forbidden), CheckKind.LEASE).reason for _ in range(3)
    ]
    assert reasons[1:] == ["LeaseNotRenewed"] * 2


def test_pods_that_can_never_be_read_do_not_excuse_resources_that_nobody_reconciles() -> None:
    readings, lagging = Readings(), kind(20, *[ResourceState.LAGGING] * 5)
    forbidden = (HealthCheck(CheckKind.PODS, U, "Forbidden", "403"),)
    for _ in range(6):
        last = readings.read(kinds=lagging, unread=forbidden)
    assert check_of(last, CheckKind.RESOURCES).reason == "NotReconciled"


def test_a_dead_controller_is_seen_although_every_second_reading_fails() -> None:
    readings, lagging = Readings(), kind(20, *[ResourceState.LAGGING] * 5)
    readings.read(leases=lease("1", fresh=True), kinds=lagging)
    seen = []
    for _ in range(6):
        readings.fail(after=TICK)
        health = readings.read(leases=lease("1"), kinds=lagging)
        seen.append({check.reason for check in health.checks if check.evidence is F})
    assert seen[2:4] == [{"LeaseNotRenewed"}, {"LeaseNotRenewed", "NotReconciled"}]


def test_a_lease_of_the_old_pod_is_no_evidence_for_the_new_one() -> None:
    readings = Readings()
    readings.read(leases=lease("1", fresh=True))
    health = readings.read(leases=lease("2", current=False))
    assert (health.evidence, check_of(health, CheckKind.LEASE).reason) == (U, "LeaseHeldByOther")


def lease_check(readings: Readings, revision: int, **renewed: str) -> HealthCheck:
    """Read Leases by name: `+` and a renewal if a pod of the revision holds it, else the last renewal."""
    fifteen = timedelta(seconds=15)
    leases = tuple(
        LeaseFacts(f"operators/{name}", "manager-1_x", value.startswith("+"), value, fifteen, fresh=True)
        for name, value in renewed.items()
        if value.startswith("+") or f"operators/{name}" in readings.memory.leases
    )
    return check_of(readings.read(revision=revision, leases=leases), CheckKind.LEASE)


def test_a_version_that_leads_by_another_lease_passes_and_so_does_the_way_back() -> None:
    readings = Readings()
    assert lease_check(readings, 1, old="+1").evidence is H
    for number in range(5):
        assert lease_check(readings, 2, old="1", new=f"+{number}").evidence is H
    # A renewal that is late does not bring the old Lease back.
    assert lease_check(readings, 2, old="1", new="+4").reason == "LeaseNotProven"
    for number in range(5):
        assert lease_check(readings, 3, old=f"+{number}", new="4").evidence is H


@pytest.mark.parametrize("held", ["none", "one of two"])
def test_a_version_that_holds_fewer_leases_than_the_one_before_fails(held: str) -> None:
    readings = Readings()
    before = {"main": "+1"} if held == "none" else {"main": "+1", "other": "+1"}
    assert lease_check(readings, 1, **before).evidence is H
    after = [
        {**before, "main": "1", **({"other": f"+{number}"} if len(before) > 1 else {})} for number in range(4)
    ]
    reasons = [lease_check(readings, 2, **each).reason for each in after]
    assert reasons[2:] == ["LeaseNotRenewed"] * 2


def probe(outcome: ProbeOutcome, message: str = "", seconds: float = 0.0) -> tuple[ProbeFacts, ...]:
    return (ProbeFacts(CheckKind.WEBHOOKS, "webhook a", outcome, message, seconds),)


@pytest.mark.parametrize(
    ("probes", "evidence", "reason"),
    [
        (probe(ProbeOutcome.ANSWERED), H, "Passed"),
        (probe(ProbeOutcome.REACHABLE, "no object"), H, "Passed"),
        (probe(ProbeOutcome.ANSWERED, seconds=1.0), F, "WebhookSlow"),
        (probe(ProbeOutcome.FAILED, "x509: unknown authority"), F, "WebhookCertificate"),
        (probe(ProbeOutcome.FAILED, "context deadline exceeded"), F, "WebhookTimeout"),
        (probe(ProbeOutcome.FAILED, "connection refused"), F, "WebhookFailed"),
        (probe(ProbeOutcome.NO_ENDPOINTS), F, "WebhookNoEndpoints"),
        (probe(ProbeOutcome.BLOCKED, "429"), U, "WebhookBlocked"),
    ],
    ids=["answered", "reachable", "slow", "certificate", "timeout", "refused", "endpoints", "busy"],
)
def test_a_webhook_fails_by_its_own_reason_once_the_pods_have_settled(
    probes: tuple[ProbeFacts, ...], evidence: Evidence, reason: str
) -> None:
    readings, running = Readings(), workload(pod())
    early = check_of(readings.read(workloads=running, probes=probes), CheckKind.WEBHOOKS)
    late = check_of(readings.read(workloads=running, probes=probes), CheckKind.WEBHOOKS)
    assert early.evidence is (H if evidence is H else U)
    assert (late.evidence, late.reason) == (evidence, reason)


def test_a_part_that_could_not_be_read_is_unknown_and_remembered_as_it_was() -> None:
    readings, lagging = Readings(), kind(4, ResourceState.LAGGING)
    for _ in range(5):
        readings.read(workloads=workload(pod()), kinds=lagging)
    unread = tuple(
        HealthCheck(part, U, "Forbidden", "not allowed") for part in (CheckKind.PODS, CheckKind.RESOURCES)
    )
    assert readings.read(unread=unread).evidence is U
    assert readings.read(workloads=workload(pod()), kinds=lagging).evidence is F


def test_patience_is_a_number_of_checks_and_at_most_the_usual() -> None:
    quick, usual = limits_for(timedelta(seconds=1)), HealthLimits()
    assert (quick.reconcile, quick.lease_patience) == (timedelta(seconds=10), timedelta(seconds=2))
    assert limits_for(TICK) == limits_for(timedelta(minutes=5)) == usual
