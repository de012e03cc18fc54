"""Expiry: judges what has outlived its TTL, so that a wrong clock never leads to a mass deletion.

The wall clock alone decides nothing. A resource whose time was seen to run out expires once that time has also
passed on the monotonic clock, which cannot be set: if the wall clock jumps ahead, the resource stays for the rest
of its time. A resource that is overdue when it is first seen, because the operator was away or its clock is wrong,
expires under a brake: at most 30 % of its group in an hour, but at least one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

__all__ = ["DELETED_AT_ONCE", "Expiry", "ExpiryVerdict", "parse_moment"]

DELETED_AT_ONCE = 0.3
"""The share of a group that may be deleted at once."""
_WINDOW_SECONDS = 3600.0
_TOLERANCE_SECONDS = 60.0
_TOLERANCE = 0.01
"""Clocks that are adjusted slowly drift apart by less than this share."""


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


class _Timer(msgspec.Struct):
    """The end of a resource's time on both clocks."""

    expires_at: datetime
    due: float
    """The end on the monotonic clock."""
    length: float
    """Seconds from the first sight to the end; not positive if the resource was overdue at first sight."""
    granted: bool = False
    """True once the brake let it go, so that a deletion that fails is tried again."""
    reported: str = ""


class Expiry:
    """The judge of all resources of one kind. There is one per controller."""

    def __init__(self) -> None:
        self._timers: dict[str, _Timer] = {}
        self._granted: dict[str, deque[float]] = {}

    def forget(self, uid: str) -> None:
        """Drop the state of a resource that is deleted."""
        self._timers.pop(uid, None)

    def judge(
        self,
        uid: str,
        expires_at: datetime | None,
        *,
        group: str,
        size: Callable[[], int],
        now: datetime,
        monotonic: float,
        unbraked: bool = False,
    ) -> ExpiryVerdict:
        """Return whether a resource has expired. `size` counts the resources of its group."""
        if expires_at is None:
            self.forget(uid)
            return ExpiryVerdict()
        left = (expires_at - now).total_seconds()
        timer = self._timers.get(uid)
        if timer is None or timer.expires_at != expires_at:
            timer = self._timers[uid] = _Timer(expires_at, monotonic + left, left)
        if left > 0:
            return ExpiryVerdict(after=left)
        if timer.granted or unbraked:
            return ExpiryVerdict(expired=True)
        if timer.length > 0:
            return _unless_jumped(timer, monotonic)
        return self._brake(timer, group, size, monotonic)

    def _brake(self, timer: _Timer, group: str, size: Callable[[], int], monotonic: float) -> ExpiryVerdict:
        recent = self._granted.setdefault(group, deque())
        while recent and recent[0] <= monotonic - _WINDOW_SECONDS:
            recent.popleft()
        if len(recent) < max(1, int((size() + len(recent)) * DELETED_AT_ONCE)):
            recent.append(monotonic)
            timer.granted = True
            return ExpiryVerdict(expired=True)
        message = (
            "kept although its TTL has passed: at most 30 % of a group expire in an hour if they were overdue when "
            "the operator first saw them. Check the operator's clock; to delete them all, set the annotation "
            "catalyst.dev/allow-mass-deletion to true"
        )
        return _kept(timer, recent[0] + _WINDOW_SECONDS - monotonic, reason="ExpiryBraked", message=message)


def _unless_jumped(timer: _Timer, monotonic: float) -> ExpiryVerdict:
    """Return that the resource has expired, unless the wall clock has run ahead of the monotonic one."""
    early = timer.due - monotonic
    if early <= max(_TOLERANCE_SECONDS, timer.length * _TOLERANCE):
        return ExpiryVerdict(expired=True)
    message = (
        f"kept although its TTL has passed: the operator's clock has jumped ahead by {early:.0f} s, so the rest of "
        "its time is measured without it. Check the clock of the operator's node"
    )
    return _kept(timer, early, reason="ClockJumped", message=message)


def _kept(timer: _Timer, after: float, *, reason: str, message: str) -> ExpiryVerdict:
    news = timer.reported != reason
    timer.reported = reason
    return ExpiryVerdict(after=max(1.0, after), reason=reason, message=message if news else "")
