"""The index.yaml of a chart repository, read event by event.

An index lists every version of every chart and can have 20 MB. Only the entries of one chart are built; the rest
is counted and skipped. Scalars stay text, so that version 1.10 does not become the number 1.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from kapsa.adapters.errors import LimitExceeded, Refused

__all__ = ["IndexValue", "read_index"]

IndexValue = Any
"""A text, a list or a dictionary of such values."""

_MOST_EVENTS = 4_000_000
_MOST_VALUES = 200_000
_DEEPEST = 30


def read_index(content: bytes, chart: str) -> list[IndexValue] | None:
    """Return the entries of a chart in an index, or None if the index does not list it.

    Raises `Refused` if it is not an index, and `LimitExceeded` if it is too large or too deep.
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _Index(yaml.parse(content, Loader=loader)).entries_of(chart)
    except (yaml.YAMLError, UnicodeError, ValueError) as error:
        raise Refused(f"the index is not YAML: {_text(error)}", reason="NoIndex") from None


class _Index:
    def __init__(self, events: Iterator[yaml.Event]) -> None:
        self._events = events
        self._events_left = _MOST_EVENTS
        self._values_left = _MOST_VALUES
        self._depth = 0

    def entries_of(self, chart: str) -> list[IndexValue] | None:
        event = self._next()
        while isinstance(event, yaml.StreamStartEvent | yaml.DocumentStartEvent):
            event = self._next()
        sections: dict[str, IndexValue] = {}
        for key, start in self._pairs(event):
            if key in sections:
                raise _no_index(f"{key} is duplicated")
            if key == "entries":
                sections[key] = self._select(start, chart)
            elif key == "apiVersion":
                sections[key] = self._build(start)
            else:
                self._skip(start)
                sections[key] = None
        if "entries" not in sections or "apiVersion" not in sections:
            raise _no_index("entries or apiVersion is missing")
        entries = sections["entries"]
        if entries is not None and not isinstance(entries, list):
            raise _no_index(f"the entries of {chart} are not a list")
        return entries

    def _select(self, start: yaml.Event, chart: str) -> IndexValue:
        selected = None
        seen: set[str] = set()
        for name, value in self._pairs(start):
            if name in seen:
                raise _no_index(f"the chart {name[:80]} is listed twice")
            seen.add(name)
            if name == chart:
                selected = self._build(value)
            else:
                self._skip(value)
        return selected

    def _pairs(self, start: yaml.Event) -> Iterator[tuple[str, yaml.Event]]:
        """Yield each key of a mapping, and the first event of its value, which the caller must consume."""
        if not isinstance(start, yaml.MappingStartEvent):
            raise _no_index("a mapping is missing")
        while not isinstance(key := self._next(), yaml.MappingEndEvent):
            if not isinstance(key, yaml.ScalarEvent):
                raise _no_index("a key is not a text")
            yield str(key.value), self._next()

    def _build(self, start: yaml.Event) -> IndexValue:
        self._values_left -= 1
        if self._values_left < 0:
            raise LimitExceeded("the index has too many values for one chart")
        if isinstance(start, yaml.ScalarEvent):
            return str(start.value)
        if isinstance(start, yaml.MappingStartEvent):
            return {key: self._build(value) for key, value in self._pairs(start)}
        items = []
        while not isinstance(item := self._next(), yaml.SequenceEndEvent):
            items.append(self._build(item))
        return items

    def _skip(self, start: yaml.Event) -> None:
        if isinstance(start, yaml.ScalarEvent):
            return
        depth = self._depth - 1
        while self._depth > depth:
            self._next()

    def _next(self) -> yaml.Event:
        event = next(self._events)
        self._events_left -= 1
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise Refused("the index has anchors or aliases, which are not accepted", reason="NoIndex")
        if isinstance(event, yaml.CollectionStartEvent):
            self._depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            self._depth -= 1
        elif isinstance(event, yaml.StreamEndEvent):
            raise _no_index("it is empty")
        if self._depth > _DEEPEST or self._events_left < 0:
            raise LimitExceeded("the index is nested too deeply, or has too many values")
        return event


def _no_index(reason: str) -> Refused:
    return Refused(f"this is not the index of a chart repository: {reason}", reason="NoIndex")


def _text(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    if mark is not None:
        return f"line {mark.line + 1}: {getattr(error, 'problem', '')}"
    return " ".join(str(error).split())[:200]
