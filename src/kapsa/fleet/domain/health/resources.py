"""Custom resources: the share of each kind that an operator has broken, or does not reconcile.

A resource that was not current before an upgrade does not count against it. One in progress counts once it has taken
too long; until then it is evidence for neither side.
"""

import enum
import heapq
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from kapsa.fleet.domain.health.memory import HealthLimits, HealthMemory, ResourceBaseline
from kapsa.fleet.domain.health.verdicts import CheckKind, Evidence, HealthCheck, worst_check

__all__ = [
    "NO_RECONCILIATION",
    "KindFacts",
    "PendingResource",
    "ResourceState",
    "baseline_of",
    "judge_resources",
    "last_writes",
    "remember_resources",
    "remember_writes",
]

NO_RECONCILIATION = "NoReconciliation"
"""The reason of a check that a person may accept: a controller may be right to ignore a resource."""
_MOST_WRITES = 100
"""Times of writes that are remembered for a kind: more than a tenant is likely to have made up."""
_MOST_KEYS = 5000
"""Resources that are remembered one by one. The verdict of a kind with more is clear long before."""


class ResourceState(enum.StrEnum):
    """The state of a resource that is not current."""

    FAILED = "Failed"
    IN_PROGRESS = "InProgress"
    LAGGING = "Lagging"
    """Its controller has not seen the latest change."""
    UNTOUCHED = "Untouched"
    """It has no status at all."""


class PendingResource(msgspec.Struct, frozen=True):
    """A resource that is not current."""

    uid: str
    name: str
    state: ResourceState
    message: str = ""


class KindFacts(msgspec.Struct, frozen=True):
    """The resources of one kind."""

    kind: str
    total: int
    reported: int
    """The number of resources with a status."""
    pending: tuple[PendingResource, ...] = ()
    writes: tuple[str, ...] = ()
    """The last times at which a status was written, newest first, as `last_writes` returns them."""

    @property
    def counted(self) -> tuple[PendingResource, ...]:
        """The resources that are not current. One without a status counts if its kind's controller writes them."""
        if self.reported:
            return self.pending
        return tuple(each for each in self.pending if each.state is not ResourceState.UNTOUCHED)


def baseline_of(kinds: Sequence[KindFacts], now: datetime) -> ResourceBaseline:
    """Return the resources that are not current now, before an upgrade."""
    keys = [each.uid for kind in kinds for each in kind.pending]
    return ResourceBaseline(now, frozenset(keys[:_MOST_KEYS]))


def remember_resources(
    kinds: Sequence[KindFacts], memory: HealthMemory, now: datetime
) -> dict[str, datetime]:
    """Return since when each resource has not been current, in the readings of this revision."""
    keys = [each.uid for kind in kinds for each in kind.counted]
    return {key: memory.waiting.get(key, now) for key in keys[:_MOST_KEYS]}


def last_writes(times: Iterable[str]) -> tuple[str, ...]:
    """Return the last times at which the statuses of a kind were written, newest first and each once.

    They are by the cluster's clock, are compared, and never read as times of ours. A client may set the one of a
    resource to any time: that hides the writes of this resource, and of no other.
    """
    return tuple(heapq.nlargest(_MOST_WRITES, {each for each in times if each}))


def remember_writes(kinds: Sequence[KindFacts], memory: HealthMemory) -> dict[str, tuple[str, ...]]:
    """Return the last writes of statuses of each kind, as they were when the pods of the revision became ready."""
    return {**{kind.kind: kind.writes for kind in kinds}, **memory.writes}


def judge_resources(
    kinds: Sequence[KindFacts],
    baseline: ResourceBaseline | None,
    waiting: dict[str, datetime],
    limits: HealthLimits,
    now: datetime,
    *,
    written: Mapping[str, tuple[str, ...]],
) -> HealthCheck:
    """Return the check of all custom resources.

    `waiting` and `written` are what `remember_resources` and `remember_writes` returned. Statuses that were right before
    and are right now pass: a controller that works has nothing to write then. The message says whether one was written.
    """
    exempt = baseline.keys if baseline else frozenset()
    checks = [
        _kind(kind, exempt, waiting, limits, now, idle=baseline is not None and not _writes((kind,), written))
        for kind in kinds
        if kind.total
    ]
    # A person may accept the one reason: it must not stand in for that of another kind, which nobody has seen.
    worst = worst_check(sorted(checks, key=lambda check: check.reason == NO_RECONCILIATION))
    if worst is not None and worst.evidence is not Evidence.HEALTHY:
        return worst
    total = sum(kind.total for kind in kinds)
    proof = "a status was written" if _writes(kinds, written) else "no status was written"
    message = f"{total} resources of {len(kinds)} kinds are current; {proof} since the pods of this revision became ready"
    return _check(Evidence.HEALTHY, "Passed", message)


def _writes(kinds: Sequence[KindFacts], written: Mapping[str, tuple[str, ...]]) -> bool:
    """Return whether a status was written since the pods became ready."""
    return any(_wrote(kind.writes, written.get(kind.kind, kind.writes)) for kind in kinds)


def _wrote(writes: Sequence[str], before: Sequence[str]) -> bool:
    """Return whether one of these times is new. Of many, only the last were remembered: an older one proves nothing."""
    oldest = before[-1] if len(before) >= _MOST_WRITES else ""
    return any(each not in before and each > oldest for each in writes)


def _kind(
    kind: KindFacts,
    exempt: frozenset[str],
    waiting: dict[str, datetime],
    limits: HealthLimits,
    now: datetime,
    *,
    idle: bool,
) -> HealthCheck:
    """Return the check of one kind. `idle` is True in a gate before any status of it was written."""
    pending = [each for each in kind.counted if each.uid not in exempt]
    overdue = [each for each in pending if _counts(each, waiting.get(each.uid, now), limits, now)]
    if len(overdue) >= limits.error_share * kind.total and overdue:
        return _check(Evidence.FAILING, _reason(overdue), _message(kind, overdue))
    if len(pending) >= limits.error_share * kind.total and pending:
        return _check(Evidence.UNKNOWN, "ResourcesInProgress", _message(kind, pending))
    ignored = [each for each in overdue if each.state is ResourceState.LAGGING]
    if idle and ignored:
        # Too few to blame the version, which may have good reasons. But nothing shows that it reconciles, either.
        message = (
            f"{_message(kind, ignored)}; no status was written since the pods of this revision became ready. If the "
            "controller is right to ignore it, resume the deployment once it is paused"
        )
        return _check(Evidence.UNKNOWN, NO_RECONCILIATION, message)
    return _check(Evidence.HEALTHY, "Passed", f"{kind.total} {kind.kind} are current")


def _counts(each: PendingResource, since: datetime, limits: HealthLimits, now: datetime) -> bool:
    return each.state is ResourceState.FAILED or now - since >= limits.reconcile


def _reason(overdue: Iterable[PendingResource]) -> str:
    failing = {ResourceState.FAILED, ResourceState.IN_PROGRESS}
    return "ResourcesFailing" if any(each.state in failing for each in overdue) else "NotReconciled"


_WORDS = {
    ResourceState.FAILED: "failed",
    ResourceState.IN_PROGRESS: "is not ready",
    ResourceState.LAGGING: "is not reconciled: its latest change has not been observed",
    ResourceState.UNTOUCHED: "is not reconciled: it has no status",
}


def _message(kind: KindFacts, pending: Sequence[PendingResource]) -> str:
    first = pending[0]
    cause = f": {first.message}" if first.message and first.state in _CAUSED else ""
    return (
        f"{len(pending)} of {kind.total} {kind.kind} are newly not current; {first.name} "
        f"{_WORDS[first.state]}{cause}"
    )


_CAUSED = frozenset({ResourceState.FAILED, ResourceState.IN_PROGRESS})


def _check(evidence: Evidence, reason: str, message: str) -> HealthCheck:
    return HealthCheck(CheckKind.RESOURCES, evidence, reason, message[:500])
