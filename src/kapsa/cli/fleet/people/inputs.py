"""Input of people, on the command line and in files: documents, pairs, durations and times."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kapsa.adapters.errors import ExternalError
from kapsa.adapters.manifests.yaml_documents import YamlLimits, load_documents
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
_LIMITS = YamlLimits(bytes=_LARGEST, depth=200)
_LONGEST_SHOWN = 60


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
    """Return the mapping in a YAML or JSON file, read as Helm reads it; an empty one without a file.

    Raises TargetError if it is not one.
    """
    if path is None:
        return {}
    try:
        documents = load_documents(read_bytes(path), str(path), _LIMITS)
    except ExternalError as error:
        raise TargetError(str(error)) from None
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise TargetError(f"{path} must have one mapping, such as `replicas: 2`")
    return documents[0]


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
    try:
        if match and text:
            days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
            return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        return msgspec.convert(text, timedelta)
    except (msgspec.ValidationError, OverflowError, ValueError):
        raise TargetError(
            f"{option} {_shortened(text)} is not a time span: use one such as 90s, 5m, 1h30m or 2d"
        ) from None


def parse_moment(option: str, text: str, now: datetime) -> datetime:
    """Return the time `2027-01-02T08:00:00Z`, or the one after a time span from now. Raises TargetError otherwise."""
    return _moment(option, text, lambda span: now + span)


def past_moment(option: str, text: str) -> str:
    """Return a time in the past, or the one before now by a time span, as the API reads it. Empty without one."""
    if not text:
        return ""
    moment = _moment(option, text, lambda span: datetime.now(UTC) - span)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def _moment(option: str, text: str, at: Callable[[timedelta], datetime]) -> datetime:
    """Return a time in UTC, or the one that `at` returns for a time span."""
    with suppress(TargetError, OverflowError):
        try:
            moment = msgspec.convert(text, datetime)
        except msgspec.ValidationError:
            moment = at(parse_duration(option, text)).replace(microsecond=0)
        if moment.tzinfo is not None:
            return moment.astimezone(UTC)
    raise TargetError(
        f"{option} {_shortened(text)} is not a time: use one with a zone, such as 2027-01-02T08:00:00Z, "
        "or a span such as 3d"
    )


def _shortened(text: str) -> str:
    return repr(text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…")
