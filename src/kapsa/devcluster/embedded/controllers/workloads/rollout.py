"""The arithmetic of a Deployment's rollout: the current size of each ReplicaSet."""

from __future__ import annotations

import math
from typing import Any

from kapsa.devcluster.embedded.controllers.machinery.kinds import Object

DESIRED = "deployment.kubernetes.io/desired-replicas"
MAXIMUM = "deployment.kubernetes.io/max-replicas"


def replicas(obj: Object) -> int:
    """Return `spec.replicas`, 1 by default."""
    value = obj["spec"].get("replicas")
    return 1 if value is None else int(value)


def available(obj: Object) -> int:
    """Return `status.availableReplicas`."""
    return int((obj.get("status") or {}).get("availableReplicas") or 0)


def is_rolling(deployment: Object) -> bool:
    """Return whether the update strategy is RollingUpdate."""
    return bool((deployment["spec"].get("strategy") or {}).get("type", "RollingUpdate") == "RollingUpdate")


def scaled(value: Any, total: int, *, up: bool) -> int:
    """Resolve an int-or-percent value against a total."""
    if isinstance(value, str):
        share = int(value.rstrip("%")) * total / 100
        return math.ceil(share) if up else math.floor(share)
    return int(value or 0)


def fenceposts(surge: Any, unavailable: Any, total: int) -> tuple[int, int]:
    """Resolve maxSurge and maxUnavailable. If both round to 0, maxUnavailable is 1 to avoid a deadlock."""
    extra, missing = scaled(surge, total, up=True), scaled(unavailable, total, up=False)
    return (0, 1) if extra == 0 and missing == 0 else (extra, missing)


def _limits(deployment: Object) -> tuple[int, int]:
    rolling = (deployment["spec"].get("strategy") or {}).get("rollingUpdate") or {}
    return fenceposts(rolling.get("maxSurge"), rolling.get("maxUnavailable"), replicas(deployment))


def max_surge(deployment: Object) -> int:
    """Return the number of pods allowed above the desired replicas."""
    return _limits(deployment)[0] if is_rolling(deployment) else 0


def max_unavailable(deployment: Object) -> int:
    """Return the number of desired replicas that may be unavailable."""
    if not is_rolling(deployment) or replicas(deployment) == 0:
        return 0
    return min(_limits(deployment)[1], replicas(deployment))


def new_size(deployment: Object, current: int, total: int) -> int:
    """Return the new size of the newest ReplicaSet, from its current size and the sum of all sizes."""
    desired = replicas(deployment)
    if not is_rolling(deployment):
        return desired
    rolling = (deployment["spec"].get("strategy") or {}).get("rollingUpdate") or {}
    room = desired + scaled(rolling.get("maxSurge"), desired, up=True) - total
    return current if room <= 0 else current + min(room, desired - current)


def shrink_old(deployment: Object, newest: Object, olds: list[Object]) -> dict[str, int]:
    """Return the new sizes of old ReplicaSets by name, within availability limits, unhealthy pods first."""
    sizes = {old["metadata"]["name"]: replicas(old) for old in olds}
    floor = replicas(deployment) - max_unavailable(deployment)
    total = sum(sizes.values()) + replicas(newest)
    budget = total - floor - (replicas(newest) - available(newest))
    if not sum(sizes.values()) or budget <= 0:
        return {}
    before = dict(sizes)
    oldest_first = sorted(olds, key=age_key)
    _drop_unhealthy(oldest_first, sizes, budget)
    spare = sum(available(rs) for rs in [*olds, newest]) - floor
    for old in oldest_first:
        name = old["metadata"]["name"]
        step = min(sizes[name], max(spare, 0))
        sizes[name] -= step
        spare -= step
    return {name: size for name, size in sizes.items() if size != before[name]}


def _drop_unhealthy(olds: list[Object], sizes: dict[str, int], budget: int) -> None:
    for old in olds:
        name = old["metadata"]["name"]
        step = min(budget, sizes[name] - available(old))
        if sizes[name] and step > 0:
            sizes[name] -= step
            budget -= step


def proportional(deployment: Object, active: list[Object]) -> dict[str, int]:
    """Return the sizes by name for scaling during a rollout: each ReplicaSet gets its share."""
    desired = replicas(deployment)
    allowed = desired + max_surge(deployment) if desired else 0
    to_add = allowed - sum(replicas(rs) for rs in active)
    # Of ReplicaSets of equal size, the newer one grows first and the older one shrinks first.
    ordered = sorted(active, key=age_key, reverse=to_add > 0)
    ordered.sort(key=replicas, reverse=True)
    sizes: dict[str, int] = {}
    added = 0
    for rs in ordered:
        share = _share(deployment, rs, to_add, added)
        sizes[rs["metadata"]["name"]] = replicas(rs) + share
        added += share
    if ordered and to_add:
        largest = ordered[0]["metadata"]["name"]
        sizes[largest] = max(0, sizes[largest] + to_add - added)
    return sizes


def _share(deployment: Object, rs: Object, to_add: int, added: int) -> int:
    size = replicas(rs)
    if not size or not to_add or to_add == added:
        return 0
    left = to_add - added
    fraction = _fraction(deployment, rs, size)
    return min(fraction, left) if to_add > 0 else max(fraction, left)


def _fraction(deployment: Object, rs: Object, size: int) -> int:
    desired = replicas(deployment)
    if desired == 0:
        return -size
    before = annotated(rs, MAXIMUM) or int((deployment.get("status") or {}).get("replicas") or 0)
    if not before:
        return 0
    return math.floor(size * (desired + max_surge(deployment)) / before + 0.5) - size


def annotated(rs: Object, annotation: str) -> int | None:
    """Return the number in an annotation, or None."""
    text = (rs["metadata"].get("annotations") or {}).get(annotation)
    return int(text) if text and text.isdigit() else None


def is_saturated(deployment: Object, rs: Object) -> bool:
    """Return whether a ReplicaSet alone provides all desired replicas."""
    desired = replicas(deployment)
    return replicas(rs) == desired and annotated(rs, DESIRED) == desired and available(rs) == desired


def age_key(obj: Object) -> tuple[str, str]:
    """Return a sort key: oldest first, then by name."""
    return obj["metadata"].get("creationTimestamp") or "", obj["metadata"]["name"]
