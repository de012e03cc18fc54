"""Health verdicts: three states of evidence, three failed checks in a row, and the soak."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kapsa.fleet.domain.health import (
    CheckKind,
    Evidence,
    GateProgress,
    GateVerdict,
    HealthCheck,
    OperatorHealth,
    accept,
    combined,
    judge_gate,
    record_check,
    record_unknown,
)
from tests.fleet.examples import START, health

SOAK = timedelta(minutes=5)
TICK = timedelta(seconds=30)
H, F, U = Evidence.HEALTHY, Evidence.FAILING, Evidence.UNKNOWN


def run(*evidence: Evidence, threshold: float = 0.0, soak: timedelta = SOAK) -> list[GateVerdict]:
    """Return the verdict after each check, one every 30 seconds."""
    progress, verdicts = GateProgress(), []
    for number, each in enumerate(evidence):
        now = START + number * TICK
        progress = record_check(progress, health(each), revision=2, chart_digest="sha256:chart", now=now)
        verdict = judge_gate(
            progress, soak=soak, success_threshold=threshold, patience=timedelta(minutes=15), now=now
        )
        verdicts.append(verdict)
    return verdicts


@pytest.mark.parametrize(
    ("evidence", "verdict"),
    [((), U), ((H,), H), ((H, H), H), ((H, U), U), ((H, F), F), ((U, F), F), ((U,), U)],
)
def test_failing_wins_then_unknown_and_nothing_is_unknown(evidence, verdict) -> None:
    assert combined(evidence) is verdict


def test_a_soak_counts_from_the_first_healthy_check() -> None:
    verdicts = run(U, U, *[H] * 11)
    assert verdicts[-2:] == [GateVerdict.WAIT, GateVerdict.PASS]
    assert GateVerdict.PASS not in verdicts[:-1]


@pytest.mark.parametrize(
    ("reason", "evidence", "last"),
    [("NoReconciliation", U, H), ("NoReconciliation", F, F), ("Drift", U, U), ("Unreachable", U, U)],
)
def test_a_person_accepts_what_a_controller_ignores_and_nothing_else(
    reason: str, evidence: Evidence, last: Evidence
) -> None:
    progress = accept(GateProgress(unknown_since=START), reason)
    assert progress.unknown_since is None
    checks = (
        HealthCheck(CheckKind.PODS, H, "Passed", ""),
        HealthCheck(CheckKind.RESOURCES, evidence, reason, ""),
    )
    seen = OperatorHealth(2, "sha256:chart", checks)
    after = record_check(progress, seen, revision=2, chart_digest="sha256:chart", now=START)
    assert after.last is last


def test_three_failed_checks_in_a_row_fail() -> None:
    assert run(H, F, F, F) == [*[GateVerdict.WAIT] * 3, GateVerdict.FAIL]


def test_two_failed_checks_and_a_healthy_one_do_not() -> None:
    assert GateVerdict.FAIL not in run(H, F, F, H, F, F, H)


def test_an_unknown_check_neither_counts_nor_clears() -> None:
    assert run(F, U, F, U, F)[-1] is GateVerdict.FAIL
    assert GateVerdict.FAIL not in run(U, U, U, U)


def test_a_conclusive_failure_needs_no_repetition() -> None:
    crash = health(F, conclusive=True, reason="CrashLoopBackOff")
    progress = record_check(GateProgress(), crash, revision=2, chart_digest="sha256:chart", now=START)
    verdict = judge_gate(progress, soak=SOAK, success_threshold=0, patience=SOAK, now=START)
    assert (verdict, progress.reason) == (GateVerdict.FAIL, "CrashLoopBackOff")


def test_evidence_about_another_revision_or_chart_is_unknown() -> None:
    for seen in (
        health(H, revision=1),
        health(H, revision=0),
        OperatorHealth(2, "sha256:other", health(H).checks),
    ):
        progress = record_check(GateProgress(), seen, revision=2, chart_digest="sha256:chart", now=START)
        assert (progress.last, progress.healthy_since, progress.reason) == (U, None, "OtherRevision")


def test_no_evidence_for_too_long_stalls_and_never_fails() -> None:
    assert run(*[U] * 31)[-1] is GateVerdict.STALL
    assert run(H, *[U] * 31)[-1] is GateVerdict.STALL


def test_a_soak_that_ends_in_an_unknown_or_failed_check_waits() -> None:
    assert run(*[H] * 10, U)[-1] is GateVerdict.WAIT
    assert run(*[H] * 10, F)[-1] is GateVerdict.WAIT
    assert run(*[H] * 19, F, H)[-1] is GateVerdict.PASS  # one of twenty


def test_too_few_healthy_checks_fail_when_the_soak_ends() -> None:
    flapping = [H, F, H, F, H, F, H, F, H, F, H]
    assert run(*flapping, threshold=0.95)[-1] is GateVerdict.FAIL
    assert run(*flapping, threshold=0.5)[-1] is GateVerdict.PASS
    assert GateVerdict.FAIL not in run(*flapping, threshold=0.95)[:-1]


@pytest.mark.parametrize("pattern", [[F, F, H], [F, H], [F, H, H, H], [F, F, U, H]], ids=str)
def test_a_version_that_flaps_passes_no_soak_and_fails_in_the_end(pattern: list[Evidence]) -> None:
    verdicts = run(*pattern * 10)
    assert GateVerdict.PASS not in verdicts
    failed_at = verdicts.index(GateVerdict.FAIL)
    assert failed_at > SOAK / TICK
    assert (pattern * 10)[: failed_at + 1].count(F) >= 9


def test_a_version_that_is_sound_for_a_whole_soak_after_a_few_failed_checks_passes() -> None:
    verdicts = run(F, F, H, H, F, *[H] * 11)
    assert verdicts[-2:] == [GateVerdict.WAIT, GateVerdict.PASS]
    assert set(verdicts[:-1]) == {GateVerdict.WAIT}


def test_unknown_checks_do_not_begin_a_soak_again() -> None:
    assert run(H, U, H, U, *[H] * 6, H)[-1] is GateVerdict.PASS


def test_one_failed_check_in_a_long_soak_does_not_begin_it_again() -> None:
    hour = timedelta(hours=1)
    assert run(*[H] * 100, F, *[H] * 20, soak=hour)[-1] is GateVerdict.PASS


def test_without_a_soak_the_first_healthy_check_passes() -> None:
    assert run(U, H, soak=timedelta()) == [GateVerdict.WAIT, GateVerdict.PASS]


def test_the_worst_check_is_reported() -> None:
    checks = (
        HealthCheck(CheckKind.LEASE, U, "LeaseUnreadable", "?"),
        HealthCheck(CheckKind.WEBHOOKS, F, "WebhookTimeout", "slow"),
        HealthCheck(CheckKind.PODS, F, "OOMKilled", "killed", conclusive=True),
    )
    problem = OperatorHealth(2, "", checks).first_problem
    assert problem is not None
    assert problem.reason == "OOMKilled"
    assert health(H).first_problem is None
    assert OperatorHealth(2, "", ()).first_problem is None


def test_an_unreachable_cluster_remembers_since_when() -> None:
    first = record_unknown(GateProgress(), "Unreachable", "no route", START)
    second = record_unknown(first, "Unreachable", "no route", START + TICK)
    assert second.unknown_since == START
    empty = record_check(second, OperatorHealth(2, "c", ()), revision=2, chart_digest="c", now=START)
    assert empty.reason == "NoEvidence"
