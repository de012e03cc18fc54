"""Maintenance windows and freezes: when a cluster may be changed.

A cluster without windows may be changed at any time. A freeze closes a cluster whatever its windows are.
"""

import enum
from collections.abc import Iterator, Sequence
from datetime import datetime, time, timedelta
from typing import Annotated
from zoneinfo import ZoneInfo

import msgspec

from kapsa.fleet.domain.durations import check_duration
from kapsa.fleet.domain.errors import InvalidField, InvalidInput

__all__ = ["ChangeFreeze", "MaintenanceWindow", "Weekday", "WindowVerdict", "check_windows", "judge_windows"]

LONGEST = timedelta(days=7)
# A week of daily freezes between weekly windows ends long before this; more is a cluster that never opens.
STEPS = 400


class Weekday(enum.StrEnum):
    """A day of the week, Monday first."""

    MONDAY = "Monday"
    TUESDAY = "Tuesday"
    WEDNESDAY = "Wednesday"
    THURSDAY = "Thursday"
    FRIDAY = "Friday"
    SATURDAY = "Saturday"
    SUNDAY = "Sunday"


class MaintenanceWindow(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A time of the week in which a cluster may be changed."""

    days: Annotated[tuple[Weekday, ...], msgspec.Meta(min_length=1, max_length=7)]
    start: Annotated[str, msgspec.Meta(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]
    """Local time, `HH:MM`."""
    duration: timedelta
    timezone: Annotated[str, msgspec.Meta(max_length=64)] = "UTC"
    """An IANA name such as `Europe/Prague`."""


class ChangeFreeze(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A period in which a cluster must not be changed."""

    starts_at: datetime
    ends_at: datetime
    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=500)]


class WindowVerdict(msgspec.Struct, frozen=True):
    """The answer to whether a cluster may be changed now."""

    open: bool
    reason: str = ""
    """One clause if it is closed: `the freeze 'year end' lasts until …`."""
    opens_at: datetime | None = None
    """The next time at which it may be changed; None if it is open, or if no such time exists."""


def check_windows(windows: Sequence[MaintenanceWindow], freezes: Sequence[ChangeFreeze]) -> None:
    """Raise `InvalidInput` that names the first field that has no meaning."""
    for number, window in enumerate(windows):
        path = f"/windows/{number}"
        check_duration(window.duration, f"{path}/duration", LONGEST)
        if not window.duration:
            raise InvalidInput("must last", InvalidField(f"{path}/duration", "must be longer than PT0S"))
        _zone(window, f"{path}/timezone")
    for number, freeze in enumerate(freezes):
        _check_freeze(freeze, f"/freezes/{number}")


def _check_freeze(freeze: ChangeFreeze, path: str) -> None:
    for name, moment in (("startsAt", freeze.starts_at), ("endsAt", freeze.ends_at)):
        if moment.tzinfo is None:
            message = "must have an offset from UTC, such as 2027-01-02T00:00:00Z"
            raise InvalidInput(message, InvalidField(f"{path}/{name}", message))
    if freeze.ends_at <= freeze.starts_at:
        message = "must be later than startsAt"
        raise InvalidInput(message, InvalidField(f"{path}/endsAt", message))


def judge_windows(
    windows: Sequence[MaintenanceWindow], freezes: Sequence[ChangeFreeze], now: datetime
) -> WindowVerdict:
    """Return whether a cluster with these windows and freezes may be changed now, and if not, when."""
    reason = _closed_reason(windows, freezes, now)
    if not reason:
        return WindowVerdict(open=True)
    try:
        opens_at = _opening(windows, freezes, now)
    except OverflowError:  # a freeze until the end of the calendar, and no week after it
        opens_at = None
    return WindowVerdict(open=False, reason=reason, opens_at=opens_at)


def _closed_reason(
    windows: Sequence[MaintenanceWindow], freezes: Sequence[ChangeFreeze], now: datetime
) -> str:
    for freeze in freezes:
        if freeze.starts_at <= now < freeze.ends_at:
            return f"the freeze {freeze.reason!r} lasts until {freeze.ends_at:%Y-%m-%d %H:%M %Z}"
    if windows and not any(_contains(window, now) for window in windows):
        return "no maintenance window is open"
    return ""


def _opening(
    windows: Sequence[MaintenanceWindow], freezes: Sequence[ChangeFreeze], now: datetime
) -> datetime | None:
    moment = now
    for _ in range(STEPS):
        ends = [freeze.ends_at for freeze in freezes if freeze.starts_at <= moment < freeze.ends_at]
        if ends:
            moment = max(ends)
        elif windows and not any(_contains(window, moment) for window in windows):
            moment = min(start for window in windows for start in _starts(window, moment) if start > moment)
        else:
            return moment
    return None


def _contains(window: MaintenanceWindow, moment: datetime) -> bool:
    return any(start <= moment < start + window.duration for start in _starts(window, moment))


def _starts(window: MaintenanceWindow, around: datetime) -> Iterator[datetime]:
    """Yield the starts from a week before to a week after a moment, in the time zone of that moment."""
    zone = _zone(window, "/timezone")
    clock = time.fromisoformat(window.start)
    today = around.astimezone(zone).date()
    weekdays = list(Weekday)
    for offset in range(-8, 9):
        day = today + timedelta(days=offset)
        if weekdays[day.weekday()] in window.days:
            yield datetime.combine(day, clock, zone).astimezone(around.tzinfo)


def _zone(window: MaintenanceWindow, path: str) -> ZoneInfo:
    try:
        return ZoneInfo(window.timezone)
    except (KeyError, ValueError, OSError) as error:
        message = f"must be an IANA time zone such as Europe/Prague, got {window.timezone!r}"
        raise InvalidInput(message, InvalidField(path, message)) from error
