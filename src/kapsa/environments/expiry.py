"""Expiry: judges what has outlived its TTL, so that a wrong clock never leads to a mass deletion.

The operator's wall clock alone decides nothing. Nothing expires before its time on the clock of the API server. A
resource whose time was seen to run out expires once that time has also passed on the monotonic clock, which cannot
be set: if the wall clock jumps ahead, the resource stays for the rest of its time. That rest counts only if the clock
was right at first sight: one that was before the start of the resource's time was behind. A resource that is overdue
when it is first seen, or was first seen by a clock that was behind, expires under a brake: at most 30 % of its group in an hour, but at least one. The others get a time
in the following hours, which their status records, so that a restart does not release the brake.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from kapsa.runtime import Client, ClientError

__all__ = ["DELETED_AT_ONCE", "Expiry", "ExpiryVerdict", "parse_moment", "present", "server_time"]

DELETED_AT_ONCE = 0.3
"""The share of a group that may be deleted at once."""
_WINDOW_SECONDS = 3600.0
_TOLERANCE_SECONDS = 60.0
_TOLERANCE = 0.01
"""Clocks that are adjusted slowly drift apart by less than this share."""
_LONGEST_BRAKE = timedelta(hours=24)
"""A time beyond it was recorded by a wrong clock: the brake needs a few hours for a group of any size."""
_NAMESPACE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"generateName": "kapsa-clock-"},
}


async def server_time(client: Client) -> datetime | None:
    """Return the time on the clock of the API server; None if the request fails.

    A dry run creates nothing, yet its response has the time of the creation.
    """
    try:
        created = await client.create(_NAMESPACE, dry_run=True)
        return datetime.fromisoformat(created["metadata"]["creationTimestamp"])
    except (ClientError, KeyError, ValueError):
        return None


async def present(client: Client, now: datetime, *moments: datetime | None) -> datetime:
    """Return the time for a record of what happens now: the API server's if the operator's clock may be behind.

    It may be behind if one of these moments, which should have passed, is later.
    """
    if not any(each is not None and each > now for each in moments):
        return now
    return max(now, await server_time(client) or now)


def parse_moment(text: str) -> datetime | None:
    """Return the time that a text denotes, with a time zone and to the second; None if it denotes none.

    >>> parse_moment("2030-01-31T12:00:00Z")
    datetime.datetime(2030, 1, 31, 12, 0, tzinfo=datetime.timezone.utc)
    """
    try:
        moment = datetime.fromisoformat(text)
        # As in the status: it has no fractions, and a year at either end of the calendar has no UTC.
        return moment.astimezone(UTC).replace(microsecond=0) if moment.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


class ExpiryVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The judgement of a resource with a TTL."""

    expired: bool = False
    after: float | None = None
    """Seconds until the next judgement."""
    reason: str = ""
    """The reason of an event, if the resource stays although the wall clock says that its time has passed."""
    message: str = ""
    """The note of that event. Empty if it was reported before."""
    kept_until: datetime | None = None
    """The time for the status until which the brake keeps the resource."""


class _Timer(msgspec.Struct):
    """The end of a resource's time on both clocks."""

    expires_at: datetime
    due: float
    """The end on the monotonic clock."""
    length: float
    """Seconds from the first sight to the end; not positive if the resource was overdue at first sight."""
    behind: bool = False
    """True if the wall clock was behind at first sight, so that the length means nothing."""
    granted: bool = False
    """True once the brake let it go, so that a deletion that fails is tried again."""
    reported: str = ""


class Expiry:
    """The judge of all resources of one kind. There is one per controller."""

    def __init__(self) -> None:
        self._timers: dict[str, _Timer] = {}
        self._granted: dict[str, deque[float]] = {}
        self._slots: dict[str, dict[str, datetime]] = {}
        """The times that the brake gave, by group and UID: the cache may not have their statuses yet."""

    def forget(self, uid: str) -> None:
        """Drop the state of a resource that is deleted."""
        self._timers.pop(uid, None)
        for slots in self._slots.values():
            slots.pop(uid, None)

    def judge(
        self,
        uid: str,
        expires_at: datetime | None,
        *,
        group: str,
        members: Callable[[], Sequence[datetime | None]],
        now: datetime,
        monotonic: float,
        server: datetime | None = None,
        since: datetime | None = None,
        kept_until: datetime | None = None,
        unbraked: bool = False,
    ) -> ExpiryVerdict:
        """Return whether a resource has expired. Its time began at `since`, or later.

        `members` returns the times until which the brake keeps each resource of its group, and `server` is the time
        on the clock of the API server, if it is known.
        """
        if expires_at is None:
            self.forget(uid)
            return ExpiryVerdict()
        if now < expires_at:
            timer = self._timer(uid, expires_at, now, monotonic)
            tolerance = timedelta(seconds=_TOLERANCE_SECONDS)
            timer.behind = timer.behind or (since is not None and now + tolerance < since)
            left = (expires_at - now).total_seconds()
            return ExpiryVerdict(after=min(left, _WINDOW_SECONDS) if timer.behind else left)
        if server is not None and server + timedelta(seconds=_TOLERANCE_SECONDS) < expires_at:
            return _ahead_of_server(self._timer(uid, expires_at, server, monotonic), now, server)
        if kept_until is None or not expires_at < kept_until <= now + _LONGEST_BRAKE:
            kept_until = None
        timer = self._timer(uid, kept_until or expires_at, now, monotonic)
        if timer.granted or unbraked:
            return ExpiryVerdict(expired=True, kept_until=kept_until)
        if kept_until is not None and now < kept_until:
            return _braked(timer, now)
        if timer.length > 0 and not (timer.behind and server is not None):
            return _unless_jumped(timer, monotonic)
        return self._brake(uid, timer, group, members(), now, monotonic)

    def _timer(self, uid: str, end: datetime, now: datetime, monotonic: float) -> _Timer:
        """Return the timer of a resource; a new one if its end has changed."""
        timer = self._timers.get(uid)
        if timer is None or timer.expires_at != end:
            left = (end - now).total_seconds()
            timer = self._timers[uid] = _Timer(end, monotonic + left, left)
        return timer

    def _brake(
        self,
        uid: str,
        timer: _Timer,
        group: str,
        members: Sequence[datetime | None],
        now: datetime,
        monotonic: float,
    ) -> ExpiryVerdict:
        """Return that the resource has expired, if few others have within the hour, else give it a later time."""
        recent = self._granted.setdefault(group, deque())
        while recent and recent[0] <= monotonic - _WINDOW_SECONDS:
            recent.popleft()
        at_once = max(1, int((len(members) + len(recent)) * DELETED_AT_ONCE))
        if len(recent) < at_once:
            recent.append(monotonic)
            timer.granted = True
            return ExpiryVerdict(expired=True)
        slots = self._slots.setdefault(group, {})
        slots[uid] = end = _free_slot([*members, *slots.values()], at_once, now)
        return _braked(self._timer(uid, end, now, monotonic), now)


def _free_slot(slots: Sequence[datetime | None], at_once: int, now: datetime) -> datetime:
    """Return the end of the first hour from now in which fewer than `at_once` resources expire."""
    # The same time counts once: a slot is both in the memory and, later, in a status.
    taken = {each for each in slots if each is not None and each > now}
    full = Counter(int((each - now).total_seconds() / _WINDOW_SECONDS - 1e-9) for each in taken)
    hour = next(number for number in range(len(slots) + 1) if full[number] < at_once)
    # A second apart, so that each slot is a time of its own in the status.
    return now.replace(microsecond=0) + timedelta(seconds=(hour + 1) * _WINDOW_SECONDS - full[hour])


def _braked(timer: _Timer, now: datetime) -> ExpiryVerdict:
    message = (
        f"kept until {timer.expires_at:%Y-%m-%d %H:%M:%SZ} although its TTL has passed: at most 30 % of a group expire "
        "in an hour if they were overdue when the operator first saw them. Check the operator's clock; to delete them "
        "all, set the annotation catalyst.dev/allow-mass-deletion to true"
    )
    after = (timer.expires_at - now).total_seconds()
    kept = _kept(timer, after, reason="ExpiryBraked", message=message)
    return msgspec.structs.replace(kept, kept_until=timer.expires_at)


def _ahead_of_server(timer: _Timer, now: datetime, server: datetime) -> ExpiryVerdict:
    """Return that the resource stays until its time has come on the clock of the API server."""
    message = (
        f"kept although its TTL has passed on the operator's clock, which is {(now - server).total_seconds():.0f} s "
        "ahead of the API server's. Check the clock of the operator's node"
    )
    left = (timer.expires_at - server).total_seconds()
    return _kept(timer, min(left, _WINDOW_SECONDS), reason="ClockJumped", message=message)


def _unless_jumped(timer: _Timer, monotonic: float) -> ExpiryVerdict:
    """Return that the resource has expired, unless the wall clock has run ahead of the monotonic one."""
    early = timer.due - monotonic
    if early <= max(_TOLERANCE_SECONDS, timer.length * _TOLERANCE):
        return ExpiryVerdict(expired=True)
    message = (
        f"kept although its TTL has passed: the operator's clock has jumped ahead by {early:.0f} s, so the rest of "
        "its time is measured without it. Check the clock of the operator's node"
    )
    # The length may come from a clock that was decades behind: look again within the hour.
    return _kept(timer, min(early, _WINDOW_SECONDS), reason="ClockJumped", message=message)


def _kept(timer: _Timer, after: float, *, reason: str, message: str) -> ExpiryVerdict:
    news = timer.reported != reason
    timer.reported = reason
    return ExpiryVerdict(after=max(1.0, after), reason=reason, message=message if news else "")
