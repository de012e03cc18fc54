"""The log of a manager: JSON lines with the fields of the specification, and no secret in any of them."""

from collections.abc import MutableMapping
from typing import Any

import structlog

from kapsa.adapters.redaction import printable, redact
from kapsa.fleet.settings import FleetSettings
from kapsa.runtime import logs

__all__ = ["configure_log"]

_LONGEST_TEXT = 20_000
_DEEPEST = 4

Line = MutableMapping[str, Any]


def configure_log(settings: FleetSettings) -> None:
    """Configure the log of this process as the settings say."""
    text = settings.log_format == "console"
    logs.configure(level=settings.log_level, format="text" if text else "json")
    *processors, renderer = structlog.get_config()["processors"]
    exceptions = structlog.processors.format_exc_info  # as text, so that secrets are hidden there, too
    fields = [] if text else [_name_fields]
    structlog.configure(processors=[*processors, exceptions, _hide_secrets, *fields, renderer])


def _name_fields(logger: object, method: str, line: Line) -> Line:
    """Give a line its fields in the order in which people read them."""
    named: Line = {
        "timestamp": line.pop("timestamp", ""),
        "level": str(line.pop("level", "info")).upper(),
        "message": line.pop("event", ""),
    }
    if "message" in line:
        line["details"] = line.pop("message")
    return {**named, **line}


def _hide_secrets(logger: object, method: str, line: Line) -> Line:
    """Hide anything that looks like a secret: texts of clusters, repositories and libraries get into the log, too."""
    return {key: _hidden(value, _DEEPEST) for key, value in line.items()}


def _hidden(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return _hidden_text(value)
    if depth and isinstance(value, dict):
        return {str(key): _hidden(each, depth - 1) for key, each in value.items()}
    if depth and isinstance(value, list | tuple | set | frozenset):
        return [_hidden(each, depth - 1) for each in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    return _hidden_text(str(value))


def _hidden_text(text: str) -> str:
    # Hide secrets in more than is kept: one that is cut in two would not be recognized.
    return redact(printable(text[: 2 * _LONGEST_TEXT]))[:_LONGEST_TEXT]
