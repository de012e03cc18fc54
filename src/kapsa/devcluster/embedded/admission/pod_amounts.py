"""The amounts that a whole pod requests or is limited to: its containers, init containers and sidecars."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kapsa.schemas.quantities import add, canonical, parse

__all__ = ["pod_amounts"]

Object = dict[str, Any]
_POD_LEVEL = ("cpu", "memory")


def pod_amounts(spec: Object, field: str, *, overhead: bool = False) -> dict[str, str]:
    """Return the sum of `requests` or `limits` of a pod spec, by resource.

    Init containers run one after another, next to the sidecars that started before them; amounts of the whole pod
    replace those of its containers.
    """
    total: dict[str, str] = {}
    for container in spec.get("containers") or ():
        _add(total, _amounts(container, field))
    sidecars: dict[str, str] = {}
    largest: dict[str, str] = {}
    for container in spec.get("initContainers") or ():
        step = dict(_amounts(container, field))
        if container.get("restartPolicy") == "Always":
            _add(total, step)
            _add(sidecars, step)
            step = dict(sidecars)
        else:
            _add(step, sidecars)
        _raise(largest, step)
    _raise(total, largest)
    for name, amount in ((spec.get("resources") or {}).get(field) or {}).items():
        if name in _POD_LEVEL:
            total[name] = canonical(amount)
    if overhead:
        _add_overhead(total, spec.get("overhead") or {}, field)
    return total


def _amounts(container: Object, field: str) -> Mapping[str, str]:
    return (container.get("resources") or {}).get(field) or {}


def _add(total: dict[str, str], amounts: Mapping[str, str]) -> None:
    for name, amount in amounts.items():
        total[name] = add(total[name], amount) if name in total else canonical(amount)


def _raise(total: dict[str, str], amounts: Mapping[str, str]) -> None:
    for name, amount in amounts.items():
        if name not in total or parse(amount) > parse(total[name]):
            total[name] = canonical(amount)


def _add_overhead(total: dict[str, str], overhead: Mapping[str, str], field: str) -> None:
    # A pod without a limit has none because of its overhead either.
    counted = {
        name: amount
        for name, amount in overhead.items()
        if field == "requests" or (name in total and parse(total[name]))
    }
    _add(total, counted)
