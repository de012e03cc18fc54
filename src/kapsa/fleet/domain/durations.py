"""Durations in ISO 8601, from days to seconds: `P1DT2H`, `PT5M`. Years, months and weeks have no fixed use here."""

import re
from datetime import timedelta

from kapsa.fleet.domain.errors import InvalidField, InvalidInput

__all__ = ["check_duration", "format_duration", "parse_duration"]

# ASCII digits alone: `\d` would accept the digits of every script.
_DURATION = re.compile(r"P(?:([0-9]{1,5})D)?(?:T(?:([0-9]{1,7})H)?(?:([0-9]{1,8})M)?(?:([0-9]{1,9})S)?)?")


def parse_duration(text: str, path: str = "") -> timedelta:
    """Return the duration that the text describes.

    Raises `InvalidInput` that names `path` if it is not an ISO 8601 duration of days, hours, minutes and seconds.
    """
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()) or text.endswith("T"):
        message = f"must be an ISO 8601 duration such as PT5M or P1DT12H, got {text[:40]!r}"
        raise InvalidInput(message, InvalidField(path, message))
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)


def format_duration(duration: timedelta) -> str:
    """Return the shortest ISO 8601 text of a duration, in whole seconds: `PT0S` for none."""
    if duration < timedelta():
        raise ValueError(f"a duration must not be negative, got {duration}")
    rest = int(duration.total_seconds())
    days, rest = divmod(rest, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, seconds = divmod(rest, 60)
    date = f"{days}D" if days else ""
    time = "".join(
        f"{count}{unit}" for count, unit in ((hours, "H"), (minutes, "M"), (seconds, "S")) if count
    )
    return f"P{date}T{time}" if time else f"P{date}" if date else "PT0S"


def check_duration(duration: timedelta, path: str, longest: timedelta) -> None:
    """Raise `InvalidInput` that names `path` unless the duration is between none and the longest allowed."""
    if timedelta() <= duration <= longest:
        return
    message = f"must be between PT0S and {format_duration(longest)}, got {duration.total_seconds():g} seconds"
    raise InvalidInput(message, InvalidField(path, message))
