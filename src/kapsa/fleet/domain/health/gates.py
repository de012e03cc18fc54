"""Gates: the checks of a new revision so far, and the decision that they allow.

Unknown never passes a gate, and never causes a rollback: an unreachable cluster pauses a rollout.
"""

import enum
from datetime import datetime, timedelta

import msgspec

from kapsa.fleet.domain.health.resources import NO_RECONCILIATION
from kapsa.fleet.domain.health.verdicts import Evidence, OperatorHealth

__all__ = [
    "FAILED_CHECKS_LIMIT",
    "GateProgress",
    "GateVerdict",
    "accept",
    "begin_of_soak",
    "judge_gate",
    "record_check",
    "record_unknown",
]

_ACCEPTABLE = frozenset({NO_RECONCILIATION})
FAILED_CHECKS_LIMIT = 3
"""Failed checks in a row that cause a rollback."""
FLAPPING_LIMIT = 9
"""Failed checks in all, with healthy ones in between, from which on a soak is not extended any more."""
SOUND_SHARE = 0.95
"""The share of healthy checks below which a soak without a threshold of its own begins again."""


class GateProgress(msgspec.Struct, frozen=True, rename="camel"):
    """The checks of a new revision so far."""

    healthy_since: datetime | None = None
    """The first healthy check of the new revision: the soak counts from here, unless too many checks fail."""
    sound_since: datetime | None = None
    """The first healthy check since the last failed one."""
    failed_in_a_row: int = 0
    """Failed checks since the last healthy one. An unknown one neither counts nor clears."""
    healthy_checks: int = 0
    failed_checks: int = 0
    conclusive: bool = False
    """A failure was seen that needs no repetition."""
    last: Evidence = Evidence.UNKNOWN
    unknown_since: datetime | None = None
    """The start of the present run of unknown checks."""
    reason: str = ""
    message: str = ""
    """The problem that the last check saw; empty if it was healthy."""
    accepted: tuple[str, ...] = ()
    """The reasons that a person has accepted, by resuming a deployment that they had paused."""


class GateVerdict(enum.StrEnum):
    """The decision of a gate."""

    WAIT = "Wait"
    PASS = "Pass"  # noqa: S105 - not a password
    FAIL = "Fail"
    STALL = "Stall"
    """No evidence for too long: a person must look."""


def record_check(
    progress: GateProgress, health: OperatorHealth, *, revision: int, chart_digest: str, now: datetime
) -> GateProgress:
    """Return the progress with one more check. Evidence about another revision or chart is unknown."""
    if (health.revision, health.chart_digest) != (revision, chart_digest):
        seen = f"revision {health.revision}" if health.revision else "no release"
        return record_unknown(progress, "OtherRevision", f"expected revision {revision}, saw {seen}", now)
    health = health.accepting(progress.accepted)
    problem = health.first_problem
    reason, message = (problem.reason, problem.message) if problem else ("", "")
    match health.evidence:
        case Evidence.HEALTHY:
            return _healthy(progress, now)
        case Evidence.FAILING:
            conclusive = any(
                check.conclusive and check.evidence is Evidence.FAILING for check in health.checks
            )
            return _failing(progress, reason, message, conclusive=conclusive)
        case Evidence.UNKNOWN:
            return record_unknown(progress, reason or "NoEvidence", message or "no check gave evidence", now)


def record_unknown(progress: GateProgress, reason: str, message: str, now: datetime) -> GateProgress:
    """Return the progress after a check that gave no evidence, as when the cluster is unreachable."""
    since = progress.unknown_since or now
    return msgspec.structs.replace(
        progress, last=Evidence.UNKNOWN, unknown_since=since, reason=reason, message=message
    )


def accept(progress: GateProgress, reason: str) -> GateProgress:
    """Return the progress after a person has seen why a gate gave up, and goes on.

    Only a change that a controller ignores is accepted so: it may be right to, and only a person can decide that.
    """
    accepted = dict.fromkeys((*progress.accepted, reason)) if reason in _ACCEPTABLE else progress.accepted
    return msgspec.structs.replace(progress, unknown_since=None, accepted=tuple(accepted))


def _healthy(progress: GateProgress, now: datetime) -> GateProgress:
    return msgspec.structs.replace(
        progress,
        healthy_since=progress.healthy_since or now,
        sound_since=progress.sound_since or now,
        failed_in_a_row=0,
        healthy_checks=progress.healthy_checks + 1,
        last=Evidence.HEALTHY,
        unknown_since=None,
        reason="",
        message="",
    )


def _failing(progress: GateProgress, reason: str, message: str, *, conclusive: bool) -> GateProgress:
    return msgspec.structs.replace(
        progress,
        sound_since=None,
        failed_in_a_row=progress.failed_in_a_row + 1,
        failed_checks=progress.failed_checks + 1,
        conclusive=progress.conclusive or conclusive,
        last=Evidence.FAILING,
        unknown_since=None,
        reason=reason,
        message=message,
    )


def judge_gate(
    progress: GateProgress, *, soak: timedelta, success_threshold: float, patience: timedelta, now: datetime
) -> GateVerdict:
    """Return the decision of a gate after the checks so far.

    `patience` bounds the time without evidence. The share of healthy checks is judged once the soak is over. Without
    a threshold, a version that flaps has to be sound for a whole soak, and fails if that does not come about.
    """
    if progress.conclusive or progress.failed_in_a_row >= FAILED_CHECKS_LIMIT:
        return GateVerdict.FAIL
    if progress.last is not Evidence.HEALTHY or progress.healthy_since is None:
        unknown = progress.unknown_since
        return GateVerdict.STALL if unknown is not None and now - unknown >= patience else GateVerdict.WAIT
    begin = begin_of_soak(progress, success_threshold)
    if begin is None or now - begin < soak:
        flaps = begin != progress.healthy_since and progress.failed_checks >= FLAPPING_LIMIT
        over = now - progress.healthy_since >= soak
        return GateVerdict.FAIL if flaps and over else GateVerdict.WAIT
    return GateVerdict.PASS if _share(progress) >= success_threshold else GateVerdict.FAIL


def begin_of_soak(progress: GateProgress, success_threshold: float) -> datetime | None:
    """Return the check from which the soak counts; None if it has not begun, or begins again."""
    if progress.healthy_since is None or success_threshold or _share(progress) >= SOUND_SHARE:
        return progress.healthy_since
    return progress.sound_since


def _share(progress: GateProgress) -> float:
    return progress.healthy_checks / (progress.healthy_checks + progress.failed_checks)
