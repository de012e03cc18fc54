"""Label selectors, for choosing objects from the cache the way the API server chooses them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TypeAlias

__all__ = ["LabelSelector", "matcher", "selector_text"]

LabelSelector: TypeAlias = str | Mapping[str, str] | None
"""`"app=web,tier in (a,b),!legacy"`, or a mapping of labels that must all be equal."""

Labels: TypeAlias = Mapping[str, str]

_REQUIREMENT = re.compile(
    r"""\s*(?:
        !\s*(?P<absent>[^\s=!,()]+)
      | (?P<name>[^\s=!,()]+)\s*(?:
            (?P<operator>==|=|!=)\s*(?P<value>[^\s=!,()]*)
          | (?P<set>in|notin)\s*\((?P<values>[^()]*)\)
        )?
    )\s*(?:,|$)""",
    re.VERBOSE,
)


def selector_text(selector: LabelSelector) -> str:
    """The selector as the API server takes it in a query."""
    if selector is None:
        return ""
    if isinstance(selector, str):
        return selector
    return ",".join(f"{name}={value}" for name, value in sorted(selector.items()))


def matcher(selector: LabelSelector) -> Callable[[Labels], bool] | None:
    """A function that says whether labels match; None if every object does."""
    text = selector_text(selector)
    return _parse(text) if text else None


@lru_cache(maxsize=256)
def _parse(text: str) -> Callable[[Labels], bool]:
    requirements: list[Callable[[Labels], bool]] = []
    position = 0
    while position < len(text):
        found = _REQUIREMENT.match(text, position)
        if found is None or found.end() == position:
            raise ValueError(f"not a label selector: {text!r} (cannot read it from {text[position:]!r} on)")
        requirements.append(_requirement(found))
        position = found.end()
    if len(requirements) == 1:
        return requirements[0]
    return lambda labels: all(holds(labels) for holds in requirements)


def _requirement(found: re.Match[str]) -> Callable[[Labels], bool]:
    absent, name = found["absent"], found["name"]
    if absent:
        return lambda labels: absent not in labels
    if found["set"]:
        values = frozenset(value.strip() for value in found["values"].split(","))
        if found["set"] == "in":
            return lambda labels: labels.get(name) in values
        return lambda labels: labels.get(name) not in values
    if found["operator"]:
        value = found["value"]
        if found["operator"] == "!=":
            return lambda labels: labels.get(name) != value
        return lambda labels: labels.get(name) == value
    return lambda labels: name in labels
