"""Memory: what one reading leaves for the next. Times are those of the manager; a cluster's clock is not ours."""

from collections.abc import Collection
from datetime import datetime, timedelta

import msgspec

from kapsa.fleet.domain.health.drift import FieldDrift
from kapsa.fleet.domain.health.verdicts import CheckKind

__all__ = [
    "HealthLimits",
    "HealthMemory",
    "LeaseMemory",
    "PodMemory",
    "ReadingTimes",
    "ResourceBaseline",
    "interrupt",
    "limits_for",
    "recall",
    "without_gap",
]


class HealthLimits(msgspec.Struct, frozen=True):
    """Limits of the judgement."""

    settle: timedelta = timedelta(seconds=20)
    """The time after the pods became ready in which a failing webhook or conversion is not held against them."""
    reconcile: timedelta = timedelta(minutes=2)
    """The longest time that a resource may be in progress."""
    lease_patience: timedelta = timedelta(seconds=60)
    """The shortest time without a renewal that fails, whatever the Lease's own duration."""
    error_share: float = 0.05
    """The share of a kind's resources at which they fail the check."""
    restarts: int = 3
    restart_window: timedelta = timedelta(minutes=5)
    """A pod fails the check with this many restarts in this time."""
    webhook_seconds: float = 1.0
    blind: timedelta = timedelta(minutes=10)
    """The time between two readings from which on nothing is concluded about what happened between them."""
    drift: timedelta = timedelta(minutes=5)
    """The time between two readings of drift, each of which asks for every object of a release."""


def limits_for(interval: timedelta) -> HealthLimits:
    """Return the limits for checks at an interval: each patience is a number of checks, and at most the usual.

    Resources get ten seconds at least, for a controller has to start and read them all.
    """
    usual, shortest = HealthLimits(), timedelta(seconds=10)
    return HealthLimits(
        settle=min(usual.settle, interval * 2 / 3),
        reconcile=min(usual.reconcile, max(shortest, interval * 4)),
        lease_patience=min(usual.lease_patience, interval * 2),
        drift=min(usual.drift, interval * 10),
    )


class PodMemory(msgspec.Struct, frozen=True, rename="camel"):
    """The restarts of a pod at a time."""

    restarts: int
    since: datetime


class LeaseMemory(msgspec.Struct, frozen=True, rename="camel"):
    """The last renewal of a Lease."""

    renewed: str
    """The renewal as the Lease has it. It is compared, and never read as a time of ours."""
    since: datetime
    """The reading that saw it first, later by each time in which the cluster could not be read."""
    proven: bool = True
    """False if the cluster could not be read since: the renewal does not prove anything any more."""


class ReadingTimes(msgspec.Struct, frozen=True, rename="camel"):
    """The times of one part of the readings: pods with their Leases, or resources."""

    read_at: datetime | None = None
    """The last reading that had the part."""
    unread_since: datetime | None = None
    """The first reading since then that failed, or did not have the part."""

    def after(self, now: datetime, *, read: bool) -> "ReadingTimes":
        """Return the times after one more reading."""
        return ReadingTimes(now) if read else ReadingTimes(self.read_at, self.unread_since or now)


class ResourceBaseline(msgspec.Struct, frozen=True, rename="camel"):
    """The state before an upgrade, as far as it must not count against it."""

    taken_at: datetime
    keys: frozenset[str] = frozenset()
    """The UIDs of the resources that were not current."""
    templates: tuple[FieldDrift, ...] = ()
    """The fields that other managers had added to pod templates."""
    controllers: bool = False
    """True if the release had a controller: the next one has to have one, too."""


class HealthMemory(msgspec.Struct, frozen=True, rename="camel"):
    """The memory of one release on one cluster."""

    revision: int = 0
    ready_since: datetime | None = None
    """The reading from which on the pods of the revision have been ready."""
    pods: dict[str, PodMemory] = {}
    """By UID."""
    waiting: dict[str, datetime] = {}
    """Resources that are not current, by UID, with the first reading of this revision that saw them so."""
    writes: dict[str, tuple[str, ...]] = {}
    """The last writes of statuses by kind, as they were when the pods of the revision became ready."""
    leases: dict[str, LeaseMemory] = {}
    """Leases that a pod of the release has held, by namespace and name."""
    held: int = 0
    """The most Leases that the pods of one revision have held at a time."""
    pods_read: ReadingTimes = ReadingTimes()
    """The readings of pods and Leases."""
    resources_read: ReadingTimes = ReadingTimes()


def recall(memory: HealthMemory, revision: int) -> HealthMemory:
    """Return the memory for a reading of a revision. A new revision starts with the pods and Leases alone."""
    if memory.revision == revision:
        return memory
    return HealthMemory(
        revision,
        pods=memory.pods,
        leases=memory.leases,
        held=memory.held,
        pods_read=memory.pods_read,
        resources_read=memory.resources_read,
    )


def interrupt(memory: HealthMemory, now: datetime) -> HealthMemory:
    """Return the memory after a reading at a time that failed as a whole."""
    return msgspec.structs.replace(
        memory,
        pods_read=memory.pods_read.after(now, read=False),
        resources_read=memory.resources_read.after(now, read=False),
    )


def without_gap(
    memory: HealthMemory, unread: Collection[CheckKind], limits: HealthLimits, now: datetime
) -> HealthMemory:
    """Return the memory for a reading at a time. A time in which the cluster could not be read counts for nothing.

    While its API server is away, a controller can neither renew its Lease nor reconcile. A part that could not be
    read this time either is left as it was: its gap goes on.
    """
    leases, waiting = memory.leases, memory.waiting
    if CheckKind.PODS not in unread:
        leases = {key: _moved(each, memory.pods_read, limits, now) for key, each in leases.items()}
    if CheckKind.RESOURCES not in unread:
        gap = _gap(memory.resources_read, limits, now)
        waiting = {key: min(since + gap, now) for key, since in waiting.items()}
    return msgspec.structs.replace(memory, leases=leases, waiting=waiting)


def _moved(lease: LeaseMemory, times: ReadingTimes, limits: HealthLimits, now: datetime) -> LeaseMemory:
    """Return a Lease without the gap before a reading.

    The API server may have gone away right after the last reading, which a controller that renewed its Lease until
    then may claim once. One that has not renewed it since has had the time between two readings for it.
    """
    gap = _gap(times, limits, now)
    if not gap:
        return lease
    if lease.proven and times.read_at is not None:
        gap = now - times.read_at
    return LeaseMemory(lease.renewed, min(lease.since + gap, now), proven=False)


def _gap(times: ReadingTimes, limits: HealthLimits, now: datetime) -> timedelta:
    """Return the time before a reading in which a part could not be read, or nobody tried to."""
    if times.read_at is None:
        return timedelta()
    tried_at = times.unread_since or now
    if tried_at - times.read_at >= limits.blind:
        return now - times.read_at
    return now - tried_at
