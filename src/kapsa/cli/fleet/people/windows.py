"""Maintenance windows as people write them: `Tuesday,Thursday 22:00 4h Europe/Prague`."""

from __future__ import annotations

from kapsa.cli.fleet.people.inputs import convert_input, parse_duration
from kapsa.cli.target import TargetError
from kapsa.fleet.domain.registry.windows import MaintenanceWindow, Weekday

__all__ = ["parse_windows"]

_SHAPE = "--window 'Tuesday,Thursday 22:00 4h Europe/Prague'"


def parse_windows(texts: list[str] | None) -> tuple[MaintenanceWindow, ...]:
    """Return maintenance windows. Raises TargetError with what one of them lacks."""
    return tuple(_parse(text) for text in texts or ())


def _parse(text: str) -> MaintenanceWindow:
    match text.split():
        case [days, start, duration]:
            zone = "UTC"
        case [days, start, duration, zone]:
            pass
        case _:
            raise TargetError(f"--window {text!r} is not days, start, length and time zone: {_SHAPE}")
    document = {
        "days": [_day(each, text) for each in days.split(",")],
        "start": start,
        "duration": parse_duration("--window", duration),
        "timezone": zone,
    }
    return convert_input(document, MaintenanceWindow, f"--window {text!r}")


def _day(text: str, window: str) -> Weekday:
    matching = [day for day in Weekday if len(text) >= 2 and day.lower().startswith(text.lower())]
    if len(matching) != 1:
        raise TargetError(f"--window {window!r}: {text!r} is not a day of the week: {_SHAPE}")
    return matching[0]
