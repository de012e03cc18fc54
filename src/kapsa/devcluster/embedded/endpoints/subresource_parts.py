"""Subresources that are a part of their object: a write through them changes nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kapsa.devcluster.embedded.verbs.writes import Transform

__all__ = ["PARTS", "confined"]

Object = dict[str, Any]

PARTS = frozenset({"status", "approval", "finalize", "ephemeralcontainers", "resize"})


def confined(subresource: str, transform: Transform) -> Transform:
    """Return the transform, confined to the part of the object that the subresource is."""
    keep = _CONFINE.get(subresource)
    if keep is None:
        return transform

    def confined_transform(live: Object | None) -> Object:
        if live is None:
            return transform(None)
        untouched: Object = msgspec.json.decode(msgspec.json.encode(live))
        return keep(untouched, transform(live))

    return confined_transform


def _finalizers_only(live: Object, requested: Object) -> Object:
    live["spec"] = {
        **(live.get("spec") or {}),
        "finalizers": (requested.get("spec") or {}).get("finalizers") or [],
    }
    # The identity that the request names is checked like that of any update.
    named = requested["metadata"]
    identity = {field: named.get(field, "") for field in ("name", "namespace", "uid", "resourceVersion")}
    live["metadata"] = {**live["metadata"], **identity}
    return live


_CONFINE: dict[str, Callable[[Object, Object], Object]] = {
    "finalize": _finalizers_only,
}
