"""The printers of resource.k8s.io: devices that pods claim."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kapsa.devcluster.embedded.replies.printers.cells import Object, age, dig, printer

__all__ = ["PRINTERS"]


def _name_and_age(obj: Object, now: datetime) -> list[Any]:
    return [obj["metadata"]["name"], age(obj, now)]


def _claim(obj: Object, now: datetime) -> list[Any]:
    return [obj["metadata"]["name"], ",".join(_claim_states(obj)), age(obj, now)]


def _claim_states(obj: Object) -> list[str]:
    deleted = bool(obj["metadata"].get("deletionTimestamp"))
    states = ["deleted"] if deleted else []
    if dig(obj, "status", "allocation") is None:
        return states or ["pending"]
    states.append("allocated")
    return [*states, "reserved"] if dig(obj, "status", "reservedFor") else states


def _slice(obj: Object, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    shown = [spec.get("nodeName", ""), spec.get("driver", ""), dig(spec, "pool", "name") or ""]
    return [obj["metadata"]["name"], *shown, age(obj, now)]


_GROUP = "resource.k8s.io"

PRINTERS = {
    (_GROUP, "deviceclasses"): printer("Name, Age", _name_and_age),
    (_GROUP, "resourceclaims"): printer("Name, State, Age", _claim),
    (_GROUP, "resourceclaimtemplates"): printer("Name, Age", _name_and_age),
    (_GROUP, "resourceslices"): printer("Name, Node, Driver, Pool, Age", _slice),
}
