"""Cron schedules in the syntax of robfig/cron: five fields, names, `@daily`, `@every 1h`, `TZ=`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec

_DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = {
    name: n
    for n, name in enumerate(
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], start=1
    )
}
_DAYS = {name: n for n, name in enumerate(["sun", "mon", "tue", "wed", "thu", "fri", "sat"])}
_BOUNDS: tuple[tuple[int, int, dict[str, int]], ...] = (
    (0, 59, {}),
    (0, 23, {}),
    (1, 31, {}),
    (1, 12, _MONTHS),
    (0, 6, _DAYS),
)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s)")
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_HORIZON = timedelta(days=5 * 366)


class Schedule(msgspec.Struct, frozen=True):
    """The times at which a CronJob runs."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_day: bool
    any_weekday: bool
    zone: str = "UTC"
    every: float | None = None

    def after(self, moment: datetime) -> datetime | None:
        """Return the first time strictly after a moment, or None if there is none within five years."""
        if self.every is not None:
            return moment.replace(microsecond=0) + timedelta(seconds=self.every)
        zone = ZoneInfo(self.zone)
        local = moment.astimezone(zone).replace(second=0, microsecond=0, tzinfo=None) + timedelta(minutes=1)
        limit = local + _HORIZON
        while local < limit:
            if local.month not in self.months:
                local = (local.replace(day=1, hour=0, minute=0) + timedelta(days=32)).replace(day=1)
            elif not self._day_matches(local):
                local = local.replace(hour=0, minute=0) + timedelta(days=1)
            elif local.hour not in self.hours:
                local = local.replace(minute=0) + timedelta(hours=1)
            elif local.minute not in self.minutes:
                local += timedelta(minutes=1)
            else:
                candidate = local.replace(tzinfo=zone).astimezone(UTC)
                # A local time that daylight saving skips does not exist: it maps to another one.
                if candidate.astimezone(zone).replace(tzinfo=None) == local and candidate > moment:
                    return candidate
                local += timedelta(minutes=1)
        return None

    def _day_matches(self, local: datetime) -> bool:
        day = local.day in self.days
        weekday = local.isoweekday() % 7 in self.weekdays
        return (day and weekday) if self.any_day or self.any_weekday else (day or weekday)


def parse(text: str, zone: str | None = None) -> Schedule:
    """Parse a schedule. Raises ValueError, in kube-apiserver's words, if it is invalid."""
    if not text:
        raise ValueError("empty spec string")
    if text.startswith(("TZ=", "CRON_TZ=")):
        prefix, _, text = text.partition(" ")
        zone = prefix.partition("=")[2]
        text = text.strip()
    zone = zone or "UTC"
    if text.startswith("@every "):
        seconds = _duration(text.removeprefix("@every "))
        every = frozenset[int]()
        return Schedule(every, every, every, every, every, True, True, zone, max(1.0, float(int(seconds))))
    if text.startswith("@"):
        if text not in _DESCRIPTORS:
            raise ValueError(f"unrecognized descriptor: {text}")
        text = _DESCRIPTORS[text]
    fields = text.split()
    if len(fields) != 5:
        raise ValueError(f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]")
    minutes, hours, days, months, weekdays = (
        _field(field, *bounds) for field, bounds in zip(fields, _BOUNDS, strict=True)
    )
    stars = [field.startswith(("*", "?")) for field in fields]
    return Schedule(minutes, hours, days, months, weekdays, stars[2], stars[4], zone)


def _duration(text: str) -> float:
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f'failed to parse duration @every {text}: time: invalid duration "{text}"')
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def _field(field: str, low: int, high: int, names: dict[str, int]) -> frozenset[int]:
    values: set[int] = set()
    for part in field.split(","):
        span, slash, step_text = part.partition("/")
        start_text, dash, end_text = span.partition("-")
        if start_text in ("*", "?"):
            start, end = low, high
        else:
            start = _number(start_text, names)
            end = _number(end_text, names) if dash else (high if slash else start)
        step = _number(step_text, {}) if slash else 1
        if start < low:
            raise ValueError(f"beginning of range ({start}) below minimum ({low}): {part}")
        if end > high:
            raise ValueError(f"end of range ({end}) above maximum ({high}): {part}")
        if start > end:
            raise ValueError(f"beginning of range ({start}) beyond end of range ({end}): {part}")
        if step == 0:
            raise ValueError(f"step of range should be a positive number: {part}")
        values.update(range(start, end + 1, step))
    return frozenset(values)


def _number(text: str, names: dict[str, int]) -> int:
    if text.lower() in names:
        return names[text.lower()]
    if not text.lstrip("-").isdigit():
        raise ValueError(f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": invalid syntax')
    if text.startswith("-"):
        raise ValueError(f"negative number ({text}) not allowed: {text}")
    return int(text)
