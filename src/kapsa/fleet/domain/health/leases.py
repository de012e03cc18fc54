"""Leases: a controller that leads renews its Lease; one that has stopped working does not."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from kapsa.fleet.domain.health.memory import HealthLimits, HealthMemory, LeaseMemory
from kapsa.fleet.domain.health.verdicts import CheckKind, Evidence, HealthCheck

__all__ = ["LeaseFacts", "count_held", "judge_leases", "remember_leases", "without_abandoned"]


class LeaseFacts(msgspec.Struct, frozen=True):
    """A leader election Lease of a release."""

    key: str
    """Its namespace and name."""
    holder: str
    current: bool
    """True if the holder is a pod at the current template."""
    renewed: str
    duration: timedelta
    fresh: bool = False
    """True if the renewal is recent by our clock, too, so that a first reading needs no second one."""


def count_held(leases: Sequence[LeaseFacts]) -> int:
    """Return the number of Leases that the pods at the current templates hold."""
    return sum(lease.current for lease in leases)


def without_abandoned(leases: Sequence[LeaseFacts], memory: HealthMemory) -> Sequence[LeaseFacts]:
    """Return the Leases without those that only earlier pods have held, if the present ones hold as many.

    A version may lead by another Lease than the one before it, which nobody renews then. A version whose pods hold fewer
    Leases is not excused: a controller has stopped working.
    """
    if count_held(leases) < max(1, memory.held):
        return leases
    return [lease for lease in leases if lease.current]


def remember_leases(
    leases: Sequence[LeaseFacts], memory: HealthMemory, now: datetime
) -> dict[str, LeaseMemory]:
    """Return the last renewals, each with the reading that saw it first."""
    remembered: dict[str, LeaseMemory] = {}
    for lease in leases:
        before = memory.leases.get(lease.key)
        same = before is not None and before.renewed == lease.renewed
        remembered[lease.key] = before if before and same else LeaseMemory(lease.renewed, now)
    return remembered


def judge_leases(
    leases: Sequence[LeaseFacts], memory: HealthMemory, limits: HealthLimits, now: datetime
) -> HealthCheck | None:
    """Return the check of the Leases, None if the release has none. `memory` is that of the reading before."""
    checks = [_lease(lease, memory.leases.get(lease.key), limits, now) for lease in leases]
    for evidence in (Evidence.FAILING, Evidence.UNKNOWN, Evidence.HEALTHY):
        for check in checks:
            if check.evidence is evidence:
                return check
    return None


def _lease(lease: LeaseFacts, before: LeaseMemory | None, limits: HealthLimits, now: datetime) -> HealthCheck:
    renewed = lease.fresh if before is None else before.renewed != lease.renewed
    held = f"Lease {lease.key}, held by {lease.holder or 'nobody'},"
    if renewed and lease.current:
        return _check(Evidence.HEALTHY, "Passed", f"{held} is being renewed")
    since = now - before.since if before is not None and not renewed else timedelta()
    if since >= max(2 * lease.duration, limits.lease_patience):
        message = f"{held} has not been renewed for {since.total_seconds():.0f} seconds"
        return _check(Evidence.FAILING, "LeaseNotRenewed", message)
    if lease.current and before is not None and before.proven and since <= lease.duration:
        return _check(Evidence.HEALTHY, "Passed", f"{held} was renewed a moment ago")
    reason = "LeaseNotProven" if lease.current else "LeaseHeldByOther"
    return _check(Evidence.UNKNOWN, reason, f"{held} has not been renewed by a pod of this revision yet")


def _check(evidence: Evidence, reason: str, message: str) -> HealthCheck:
    return HealthCheck(CheckKind.LEASE, evidence, reason, message[:500])
