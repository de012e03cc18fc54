"""Label selectors, which match cached objects as the API server would."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TypeAlias

__all__ = ["LabelSelector", "matcher", "selector_text"]

LabelSelector: TypeAlias = str | Mapping[str, str] | None
"""`"app=web,tier in (a,b),!legacy"`, or a mapping of labels that must all match."""

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
    """Return the selector as a query parameter of the API server."""
    if selector is None:
        return ""
    if isinstance(selector, str):
        return selector
    return ",".join(f"{name}={value}" for name, value in sorted(selector.items()))


def matcher(selector: LabelSelector) -> Callable[[Labels], bool] | None:
    """Return a function that returns whether labels match; None if all objects match."""
    text = selector_text(selector)
    return _parse(text) if text else None


@lru_cache(maxsize=256)
def _parse(text: str) -> Callable[[Labels], bool]:
    requirements: list[Callable[[Labels], bool]] = []
    position = 0
    while position < len(text):
        match = _REQUIREMENT.match(text, position)
        if match is None or match.end() == position:
            raise ValueError(f"label selector {text!r} is invalid at {text[position:]!r}")
        requirements.append(_requirement(match))
        position = match.end()
    if len(requirements) == 1:
        return requirements[0]
    return lambda labels: all(holds(labels) for holds in requirements)


def _requirement(match: re.Match[str]) -> Callable[[Labels], bool]:
    absent, name = match["absent"], match["name"]
    if absent:
        return lambda labels: absent not in labels
    if match["set"]:
        values = frozenset(value.strip() for value in match["values"].split(","))
        if match["set"] == "in":
            return lambda labels: labels.get(name) in values
        return lambda labels: labels.get(name) not in values
    if match["operator"]:
        value = match["value"]
        if match["operator"] == "!=":
            return lambda labels: labels.get(name) != value
        return lambda labels: labels.get(name) == value
    return lambda labels: name in labels
