"""Canonical forms: the order of an object's fields and the format of its times."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kapsa.devcluster.embedded.kinds.registry import ResourceInfo

__all__ = ["canonical", "timestamp"]

Object = dict[str, Any]

# Free text of users comes after resourceVersion, so that the first `"resourceVersion":"` of an encoded object is
# always the object's own.
_ORDER = (
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
)
_ZERO_MATTERS = "deletionGracePeriodSeconds"


def canonical(info: ResourceInfo, obj: Object) -> Object:
    """Return the object in stored order: type, metadata, then the rest, without empty metadata."""
    metadata = obj["metadata"]
    ordered = {}
    for field in _ORDER:
        value = metadata.get(field)
        if value or (field == _ZERO_MATTERS and value == 0 and value is not None):
            ordered[field] = value
    result = {"apiVersion": info.storage_api_version, "kind": info.kind, "metadata": ordered}
    for key, value in obj.items():
        if key not in result:
            result[key] = value
    return result


def timestamp(moment: datetime) -> str:
    """Format a time as metav1.Time does: RFC 3339 in whole seconds."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
