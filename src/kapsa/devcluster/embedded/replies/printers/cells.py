"""Columns and cells: ages, and the short forms of lists, labels and selectors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

__all__ = [
    "Column",
    "Object",
    "Printer",
    "age",
    "containers",
    "dig",
    "human_duration",
    "labels",
    "printer",
    "selector",
    "shortened",
    "since",
]

Object = dict[str, Any]
Cells = Callable[[Object, datetime], list[Any]]
_OPERATORS = {"In": "in", "NotIn": "notin"}


class Column(msgspec.Struct, frozen=True):
    """The header of a column."""

    name: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0


class Printer(msgspec.Struct, frozen=True):
    """The columns of a kind, and the function that returns an object's cells in their order."""

    columns: tuple[Column, ...]
    cells: Cells
    order: Callable[[Object], Any] | None = None
    """The key by which the rows of a list are sorted; None for the order of the list."""


def printer(headers: str, cells: Cells) -> Printer:
    """Return a printer with headers from text: `Name, Desired:integer, PV:string:name, IP+`; + marks wide columns."""
    columns = []
    for header in headers.split(","):
        name, type_, format_ = (*header.strip().split(":"), "", "")[:3]
        priority = int(name.endswith("+"))
        name = name.rstrip("+")
        default = "name" if name == "Name" else ""
        columns.append(Column(name, type_.rstrip("+") or "string", format_ or default, "", priority))
    return Printer(tuple(columns), cells)


def dig(value: Any, *keys: str) -> Any:
    """Return the value under nested keys, or None if one is missing."""
    for key in keys:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def age(obj: Object, now: datetime) -> str:
    """Return the time since an object's creation."""
    return since(dig(obj, "metadata", "creationTimestamp"), now)


def since(timestamp: str | None, now: datetime) -> str:
    """Return the time since a timestamp."""
    if not timestamp:
        return "<unknown>"
    return human_duration(now - datetime.fromisoformat(timestamp))


def human_duration(elapsed: timedelta) -> str:
    """Render a duration as kubectl does: 90s, 5m30s, 3h, 2d4h, 3y."""
    seconds = int(elapsed.total_seconds())
    if seconds < 0:
        return "0s" if seconds == -1 else "<invalid>"
    if seconds < 120:
        return f"{seconds}s"
    minutes, hours = seconds // 60, seconds // 3600
    if minutes < 10:
        return _two(minutes, "m", seconds % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if hours < 24 * 8:
        return _two(days, "d", hours % 24, "h")
    if days < 365 * 2:
        return f"{days}d"
    if days < 365 * 8:
        return _two(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _two(large: int, unit: str, small: int, small_unit: str) -> str:
    return f"{large}{unit}{small}{small_unit}" if small else f"{large}{unit}"


def labels(values: Mapping[str, str] | None) -> str:
    """Render labels on one line."""
    return ",".join(f"{key}={value}" for key, value in sorted((values or {}).items())) or "<none>"


def selector(value: Object | None, empty: str = "<none>") -> str:
    """Render a LabelSelector on one line."""
    if value is None:
        return "<none>"
    parts = {key: f"{key}={label}" for key, label in (value.get("matchLabels") or {}).items()}
    ordered = [parts[key] for key in sorted(parts)]
    for expression in value.get("matchExpressions") or ():
        key, operator = expression["key"], expression["operator"]
        if operator in _OPERATORS:
            values = ",".join(sorted(expression.get("values") or ()))
            ordered.append(f"{key} {_OPERATORS[operator]} ({values})")
        else:
            ordered.append(key if operator == "Exists" else f"!{key}")
    return ",".join(ordered) or empty


def shortened(items: Iterable[str], limit: int = 3) -> str:
    """Render the first items of a list and the number of the others."""
    listed = list(items)
    if not listed:
        return "<unset>"
    text = ",".join(listed[:limit])
    return f"{text} + {len(listed) - limit} more..." if len(listed) > limit else text


def containers(pod_spec: Object | None) -> tuple[str, str]:
    """Return the names and the images of a pod template's containers."""
    items = (pod_spec or {}).get("containers") or ()
    return ",".join(item.get("name", "") for item in items), ",".join(item.get("image", "") for item in items)
