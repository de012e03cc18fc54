"""The parts of times and durations: `getHours()` and its relatives."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

from kapsa.schemas.cel.library.signatures import Functions, method
from kapsa.schemas.cel.values import CelDuration, CelEvaluationError, Timestamp

__all__ = ["FUNCTIONS"]

_OFFSET = re.compile(r"([+-]?)(\d\d?):(\d\d?)", re.ASCII)


def _local(time: Timestamp, zone: str) -> datetime:
    match = _OFFSET.fullmatch(zone)
    if match is not None:
        offset = timedelta(hours=int(match[2]), minutes=int(match[3]))
        return time.datetime().astimezone(timezone(-offset if match[1] == "-" else offset))
    from zoneinfo import ZoneInfo

    try:
        return time.datetime().astimezone(ZoneInfo(zone or "UTC"))
    except (OSError, ValueError, KeyError):
        raise CelEvaluationError(f"unknown time zone {zone}") from None


def _part(read: Callable[[datetime], int]) -> Callable[..., int]:
    return lambda time, zone="UTC": read(_local(time, zone))


def _whole(nanoseconds: int) -> Callable[[CelDuration], int]:
    def compute(duration: CelDuration) -> int:
        count = abs(duration.nanoseconds) // nanoseconds
        return -count if duration.nanoseconds < 0 else count

    return compute


_PARTS: dict[str, tuple[str, Callable[[datetime], int]]] = {
    "getFullYear": ("timestamp_to_year", lambda time: time.year),
    "getMonth": ("timestamp_to_month", lambda time: time.month - 1),
    "getDayOfYear": ("timestamp_to_day_of_year", lambda time: time.timetuple().tm_yday - 1),
    "getDayOfMonth": ("timestamp_to_day_of_month", lambda time: time.day - 1),
    "getDate": ("timestamp_to_day_of_month_1_based", lambda time: time.day),
    "getDayOfWeek": ("timestamp_to_day_of_week", lambda time: time.isoweekday() % 7),
    "getHours": ("timestamp_to_hours", lambda time: time.hour),
    "getMinutes": ("timestamp_to_minutes", lambda time: time.minute),
    "getSeconds": ("timestamp_to_seconds", lambda time: time.second),
    "getMilliseconds": ("timestamp_to_milliseconds", lambda time: time.microsecond // 1000),
}

FUNCTIONS: Functions = {
    name: [
        method(id_, "timestamp", "int", _part(read)),
        method(f"{id_}_with_tz", "timestamp; string", "int", _part(read)),
    ]
    for name, (id_, read) in _PARTS.items()
}
FUNCTIONS["getHours"].append(method("duration_to_hours", "duration", "int", _whole(3600 * 10**9)))
FUNCTIONS["getMinutes"].append(method("duration_to_minutes", "duration", "int", _whole(60 * 10**9)))
FUNCTIONS["getSeconds"].append(method("duration_to_seconds", "duration", "int", _whole(10**9)))
FUNCTIONS["getMilliseconds"].append(method("duration_to_milliseconds", "duration", "int", _whole(10**6)))
