"""Owner references: the controller of an object, adoption and release."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kapsa.devcluster.embedded.controllers.machinery.kinds import Kind, Object
from kapsa.devcluster.embedded.kinds.labels import matches


def controller_of(obj: Object) -> dict[str, Any] | None:
    """Return the owner reference marked `controller: true`, if any."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return dict(reference)
    return None


def controller_uid(obj: Object) -> str:
    """Return the uid of the object's controller, or an empty string."""
    reference = controller_of(obj)
    return reference["uid"] if reference else ""


def controller_reference(kind: Kind, owner: Object) -> dict[str, Any]:
    """Return the owner reference that a controller sets on the objects it creates."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def is_deleting(obj: Object) -> bool:
    """Return whether the object's deletion has begun."""
    return "deletionTimestamp" in obj["metadata"]


def claim(
    kind: Kind,
    owner: Object,
    selector: dict[str, Any],
    candidates: Iterable[Object],
    *,
    adoptable: Callable[[Object], bool] = lambda _: True,
) -> tuple[list[Object], list[Object]]:
    """Sort candidates into those the owner controls and those whose controller must change.

    The first list holds objects that are owned and still selected. The second holds modified copies to write:
    matching orphans, with the owner added, and owned objects that no longer match, with the owner removed.
    """
    uid = owner["metadata"]["uid"]
    mine: list[Object] = []
    rewritten: list[Object] = []
    for candidate in candidates:
        holder = controller_of(candidate)
        selected = matches(selector, candidate["metadata"].get("labels") or {})
        if holder is None:
            may_adopt = selected and not is_deleting(owner) and not is_deleting(candidate)
            if may_adopt and adoptable(candidate):
                rewritten.append(_adopted(kind, owner, candidate))
        elif holder["uid"] == uid:
            if selected:
                mine.append(candidate)
            elif not is_deleting(owner) and not is_deleting(candidate):
                rewritten.append(_released(uid, candidate))
    return mine, rewritten


def _adopted(kind: Kind, owner: Object, orphan: Object) -> Object:
    references = [
        r for r in orphan["metadata"].get("ownerReferences") or () if r["uid"] != owner["metadata"]["uid"]
    ]
    metadata = {**orphan["metadata"], "ownerReferences": [*references, controller_reference(kind, owner)]}
    return {**orphan, "metadata": metadata}


def _released(uid: str, obj: Object) -> Object:
    metadata = dict(obj["metadata"])
    references = [r for r in metadata.pop("ownerReferences") if r["uid"] != uid]
    if references:
        metadata["ownerReferences"] = references
    return {**obj, "metadata": metadata}
