"""Conversion of built-in kinds between the stored version and the requested one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kapsa.devcluster.embedded.codec.stored_form import decode
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.embedded.storage.store import Stored

__all__ = ["Reader", "from_storage", "reader_of", "to_storage"]

Object = dict[str, Any]
Convert = Callable[[Object], Object]
Reader = Callable[[Stored], bytes]


def reader_of(info: ResourceInfo) -> Reader | None:
    """Return a function from a stored object to its bytes in this version; None if they are the stored ones."""
    converter = info.converter
    if converter is not None:
        # Also for the stored version, while objects are stored in an earlier one.
        return lambda stored: msgspec.json.encode(converter.read(stored))
    if info.storage_api_version == info.api_version:
        return None
    change = _FROM_STORAGE.get((info.group, info.version, info.resource))
    if change is not None:
        return lambda stored: msgspec.json.encode(change(decode(stored)))
    # Only the apiVersion differs, with which the bytes start.
    before = _prefix(info.storage_api_version)
    after = _prefix(info.api_version)
    length = len(before)
    return lambda stored: after + stored.body[length:]


def _prefix(api_version: str) -> bytes:
    return b'{"apiVersion":%b' % msgspec.json.encode(api_version)


def from_storage(info: ResourceInfo, stored: Stored) -> Object:
    """Return a copy of a stored object in this version."""
    if info.converter is not None:
        return info.converter.read(stored)
    obj = decode(stored)
    if info.storage_api_version != info.api_version:
        change = _FROM_STORAGE.get((info.group, info.version, info.resource))
        obj = change(obj) if change is not None else obj
        obj["apiVersion"] = info.api_version
    return obj


def to_storage(info: ResourceInfo, obj: Object) -> Object:
    """Convert an object of this version to the stored one."""
    change = _TO_STORAGE.get((info.group, info.version, info.resource))
    return obj if change is None else change(obj)


# Events: one collection for two groups, whose fields have different names

_EVENT_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_EVENT_NAMES_BACK = {new: old for old, new in _EVENT_NAMES.items()}


def _event_to_new(obj: Object) -> Object:
    renamed = {_EVENT_NAMES.get(field, field): value for field, value in obj.items()}
    renamed["apiVersion"] = "events.k8s.io/v1"
    return renamed


def _event_to_core(obj: Object) -> Object:
    renamed = {_EVENT_NAMES_BACK.get(field, field): value for field, value in obj.items()}
    renamed["apiVersion"] = "v1"
    return renamed


# Autoscalers: version 1 has only a CPU target

_ANNOTATION = "autoscaling.alpha.kubernetes.io/"


def _autoscaler_to_v2(obj: Object) -> Object:
    spec = dict(obj.get("spec") or {})
    target = spec.pop("targetCPUUtilizationPercentage", None)
    if target is not None:
        resource = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": target}}
        spec["metrics"] = [{"type": "Resource", "resource": resource}]
    status = dict(obj.get("status") or {})
    current = status.pop("currentCPUUtilizationPercentage", None)
    if current is not None:
        resource = {"name": "cpu", "current": {"averageUtilization": current}}
        status["currentMetrics"] = [{"type": "Resource", "resource": resource}]
    status.setdefault("currentMetrics", None)
    if not status.get("currentReplicas"):
        status.pop("currentReplicas", None)
    return {**obj, "apiVersion": "autoscaling/v2", "spec": spec, "status": status}


def _autoscaler_to_v1(obj: Object) -> Object:
    spec = dict(obj.get("spec") or {})
    others = []
    for metric in spec.pop("metrics", None) or ():
        resource = metric.get("resource") or {}
        utilization = (resource.get("target") or {}).get("averageUtilization")
        if metric.get("type") == "Resource" and resource.get("name") == "cpu" and utilization is not None:
            spec["targetCPUUtilizationPercentage"] = utilization
        else:
            others.append(metric)
    status = {"currentReplicas": 0, "desiredReplicas": 0, **(obj.get("status") or {})}
    for metric in status.pop("currentMetrics", None) or ():
        resource = metric.get("resource") or {}
        utilization = (resource.get("current") or {}).get("averageUtilization")
        if resource.get("name") == "cpu" and utilization is not None:
            status["currentCPUUtilizationPercentage"] = utilization
    metadata = dict(obj["metadata"])
    if others:
        shown = msgspec.json.encode(others).decode()
        metadata["annotations"] = {**(metadata.get("annotations") or {}), f"{_ANNOTATION}metrics": shown}
    for field in ("conditions",):
        status.pop(field, None)
    spec.pop("behavior", None)
    return {**obj, "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status}


_FROM_STORAGE: dict[tuple[str, str, str], Convert] = {
    ("events.k8s.io", "v1", "events"): _event_to_new,
    ("autoscaling", "v1", "horizontalpodautoscalers"): _autoscaler_to_v1,
}
_TO_STORAGE: dict[tuple[str, str, str], Convert] = {
    ("events.k8s.io", "v1", "events"): _event_to_core,
    ("autoscaling", "v1", "horizontalpodautoscalers"): _autoscaler_to_v2,
}
