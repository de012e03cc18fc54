"""Quality of service: the class that the requests and limits of a pod put it into."""

from __future__ import annotations

from typing import Any

from kapsa.schemas.quantities import parse

__all__ = ["quality_of_service"]

Object = dict[str, Any]

_COMPUTE = ("cpu", "memory")


def quality_of_service(spec: Object) -> str:
    """Return the QoS class of a pod spec."""
    requests: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    guaranteed = True
    members = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    if any((spec.get("resources") or {}).values()):
        # Amounts of the whole pod decide alone.
        members = [spec]
    for container in members:
        resources = container.get("resources") or {}
        for name, amount in (resources.get("requests") or {}).items():
            if name in _COMPUTE and parse(amount) > 0:
                requests[name] = requests.get(name, 0) + parse(amount)
        limited = set()
        for name, amount in (resources.get("limits") or {}).items():
            if name in _COMPUTE and parse(amount) > 0:
                limited.add(name)
                limits[name] = limits.get(name, 0) + parse(amount)
        guaranteed = guaranteed and limited == set(_COMPUTE)
    if not requests and not limits:
        return "BestEffort"
    return "Guaranteed" if guaranteed and requests == limits else "Burstable"
