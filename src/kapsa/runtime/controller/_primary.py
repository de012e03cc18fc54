"""Finalizers: the patches that put ours on a resource and take it away, and touch nobody else's."""

from __future__ import annotations

from typing import Any

from kapsa.runtime.cache.store import StoredObject

__all__ = ["patch_to_add", "patch_to_remove"]

JsonPatch = list[dict[str, Any]]


def patch_to_add(stored: StoredObject, finalizer: str) -> JsonPatch:
    """Adds the finalizer, unless the resource changed since it was read.

    The test keeps it from a later resource of the same name, and from a list that somebody else has begun meanwhile.
    """
    test = {"op": "test", "path": "/metadata/resourceVersion", "value": stored.resource_version}
    if stored.finalizers:
        return [test, {"op": "add", "path": "/metadata/finalizers/-", "value": finalizer}]
    return [test, {"op": "add", "path": "/metadata/finalizers", "value": [finalizer]}]


def patch_to_remove(stored: StoredObject, finalizer: str) -> JsonPatch | None:
    """Removes the finalizer by its place in the list, and only if it is at that place; None if there is none."""
    if finalizer not in stored.finalizers:
        return None
    path = f"/metadata/finalizers/{stored.finalizers.index(finalizer)}"
    return [
        {"op": "test", "path": "/metadata/uid", "value": stored.uid},
        {"op": "test", "path": path, "value": finalizer},
        {"op": "remove", "path": path},
    ]
