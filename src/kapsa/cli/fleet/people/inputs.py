"""Input of people, on the command line and in files: documents, pairs, durations and times."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from kapsa.cli.target import TargetError

__all__ = [
    "convert_input",
    "parse_duration",
    "parse_moment",
    "parse_pairs",
    "past_moment",
    "read_bytes",
    "read_mapping",
    "read_text",
]

Kind = TypeVar("Kind")

_SPAN = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_LARGEST = 32 * 1024 * 1024


def read_bytes(path: Path) -> bytes:
    """Return the content of a file, or of standard input for `-`. Raises TargetError if it cannot be read."""
    try:
        content = sys.stdin.buffer.read(_LARGEST + 1) if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise TargetError(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > _LARGEST:
        raise TargetError(f"{path} is larger than {_LARGEST // 1024 // 1024} MB")
    return content


def read_text(path: Path) -> str:
    """Return the text of a file, or of standard input for `-`. Raises TargetError if it is not text."""
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError:
        raise TargetError(f"{path} is not a text in UTF-8") from None


def read_mapping(path: Path | None) -> dict[str, Any]:
    """Return the mapping in a YAML or JSON file; an empty one without a file. Raises TargetError if it is not one."""
    if path is None:
        return {}
    try:
        document = yaml.safe_load(read_text(path))
    except (yaml.YAMLError, RecursionError) as error:
        where = getattr(error, "problem_mark", None)
        line = f" in line {where.line + 1}" if where else ""
        raise TargetError(
            f"{path} is not valid YAML{line}: {getattr(error, 'problem', None) or error}"
        ) from None
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        raise TargetError(f"{path} must have a mapping with texts as keys, such as `replicas: 2`")
    return document


def convert_input(document: Any, kind: type[Kind], source: str) -> Kind:
    """Return a document as a request. Raises TargetError with the field that does not fit."""
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise TargetError(f"{source}: {error}") from None


def parse_pairs(option: str, texts: list[str] | None) -> dict[str, str]:
    """Return `key=value` texts as a mapping. Raises TargetError for one that is not a pair."""
    pairs: dict[str, str] = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise TargetError(f"{option} {text!r} is not a pair: use {option} key=value")
        pairs[key] = value
    return pairs


def parse_duration(option: str, text: str) -> timedelta:
    """Return the time span `90s`, `5m`, `1h30m`, `2d` or `PT5M`. Raises TargetError for anything else."""
    match = _SPAN.fullmatch(text.lower())
    if match and text:
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    try:
        return msgspec.convert(text, timedelta)
    except (msgspec.ValidationError, OverflowError):
        raise TargetError(
            f"{option} {text!r} is not a time span: use one such as 90s, 5m, 1h30m or 2d"
        ) from None


def parse_moment(option: str, text: str, now: datetime) -> datetime:
    """Return the time `2027-01-02T08:00:00Z`, or the one after a time span from now. Raises TargetError otherwise."""
    try:
        moment = msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        try:
            return (now + parse_duration(option, text)).astimezone(UTC).replace(microsecond=0)
        except (TargetError, OverflowError):
            moment = None
    if moment is None or moment.tzinfo is None:
        raise TargetError(
            f"{option} {text!r} is not a time: use one with a zone, such as 2027-01-02T08:00:00Z, or a span such as 3d"
        )
    return moment


def past_moment(option: str, text: str) -> str:
    """Return a time in the past, or the one before now by a time span, as the API reads it. Empty without one."""
    if not text:
        return ""
    now = datetime.now(UTC)
    moment = parse_moment(option, text, now)
    is_span = _SPAN.fullmatch(text.lower()) is not None
    return (now - (moment - now) if is_span else moment).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
