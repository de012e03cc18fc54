"""Namespaces that are created for a resource: claimed and deleted only if the resource owns them.

A resource owns a namespace if the namespace has a label with its UID and, once the status records a
namespace, if the UIDs match. A namespace with another owner, or none, is refused: never adopted, never
changed, never deleted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from kapsa.environments.names import OWNER, OWNER_UID
from kapsa.environments.resources import NamespaceStatus
from kapsa.runtime import AlreadyExists, Context, NotFound, StoredObject

__all__ = [
    "NAMESPACE",
    "ClaimedNamespace",
    "ForeignNamespaceError",
    "NamespaceChangingError",
    "claim",
    "owners",
    "refuse_foreign",
    "release",
]

NAMESPACE = "v1/Namespace"


class ForeignNamespaceError(Exception):
    """A namespace of the required name exists, and the resource does not own it."""

    reason = "NamespaceNotOurs"


class NamespaceChangingError(Exception):
    """The namespace is being deleted, or was deleted. It is created again once it is gone."""

    reason = "NamespaceTerminating"


class ClaimedNamespace(msgspec.Struct, frozen=True):
    """A namespace that the resource owns."""

    name: str
    uid: str


async def claim(
    ctx: Context[Any], name: str, *, labels: Mapping[str, str], annotations: Mapping[str, str] | None = None
) -> ClaimedNamespace:
    """Create or correct the namespace, with these labels and annotations and the marks of its owner.

    The status records it. Raises ForeignNamespaceError if the resource does not own it, and
    NamespaceChangingError while it is being deleted; the watch on namespaces triggers the next run.
    """
    desired = _manifest(ctx, name, labels, annotations or {})
    remembered: NamespaceStatus | None = ctx.status.namespace
    live = ctx.get(NAMESPACE, name, namespace="", track=True)
    if live is None and remembered is not None and (live := await _live(ctx, name)) is None:
        # First clear the status, then create the namespace. With both in one run, a crash in between would
        # leave a namespace that does not match the status.
        ctx.status.namespace = None
        raise NamespaceChangingError(f"namespace {name} was deleted; creating it again")
    if live is None:
        live = await _create(ctx, desired)
    refuse_foreign(live, ctx.stored.uid, remembered)
    if live["metadata"].get("deletionTimestamp"):
        raise NamespaceChangingError(
            f"namespace {name} is being deleted; it is created again once it is gone"
        )
    await _correct(ctx, live, desired)
    ctx.status.namespace = NamespaceStatus(name=name, uid=live["metadata"]["uid"])
    return ClaimedNamespace(name, live["metadata"]["uid"])


async def release(ctx: Context[Any], name: str) -> str:
    """Delete the namespace if the resource owns it.

    Returns what blocks the deletion; empty once it is gone.
    """
    ctx.track(NAMESPACE, name, namespace="")
    live = await _live(ctx, name)
    if live is None:
        return ""
    try:
        refuse_foreign(live, ctx.stored.uid, ctx.status.namespace)
    except ForeignNamespaceError as refusal:
        ctx.log.info("namespace not deleted: the resource does not own it", namespace=name, why=str(refusal))
        return ""
    if not live["metadata"].get("deletionTimestamp"):
        await ctx.delete(live, propagation="Background")
        live = await _live(ctx, name)
        if live is None:
            return ""
    return _blockers(live) or f"namespace {name} is being deleted"


def owners(stored: StoredObject) -> Iterable[tuple[str, str]]:
    """Map an object to the resource it was created for, by its annotation. For a Watch."""
    namespace, _, name = stored.annotations().get(OWNER, "").partition("/")
    return [(namespace, name)] if namespace and name else []


def _manifest(
    ctx: Context[Any], name: str, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": name,
            "labels": {**labels, OWNER_UID: ctx.stored.uid},
            "annotations": {**annotations, OWNER: f"{ctx.key.namespace}/{ctx.key.name}"},
        },
    }


async def _live(ctx: Context[Any], name: str) -> dict[str, Any] | None:
    """Read the namespace from the API server: the cache may lack a write whose response was lost."""
    with contextlib.suppress(NotFound):
        return await ctx.client.get(NAMESPACE, name)
    return None


async def _create(ctx: Context[Any], desired: dict[str, Any]) -> dict[str, Any]:
    """Create the namespace. Apply would take over one that another client creates at the same time."""
    try:
        return await ctx.create(desired, owner=False)
    except AlreadyExists:
        existing: dict[str, Any] = await ctx.client.get(NAMESPACE, desired["metadata"]["name"])
        return existing


def refuse_foreign(live: Mapping[str, Any], uid: str, remembered: NamespaceStatus | None) -> None:
    """Raise ForeignNamespaceError unless the namespace was created for the resource with this UID."""
    metadata = live["metadata"]
    name, owner = metadata["name"], (metadata.get("labels") or {}).get(OWNER_UID)
    if owner != uid:
        whose = (metadata.get("annotations") or {}).get(OWNER) if owner else None
        raise ForeignNamespaceError(
            f"namespace {name} already exists and belongs to {whose or 'another owner'}: delete it, or choose "
            "another name"
        )
    if remembered is not None and remembered.name == name and remembered.uid != metadata["uid"]:
        raise ForeignNamespaceError(
            f"namespace {name} is not the one in the status (uid {metadata['uid']}, not {remembered.uid}): delete it"
        )


async def _correct(ctx: Context[Any], live: Mapping[str, Any], desired: Mapping[str, Any]) -> None:
    """Restore labels and annotations that were changed; those set by others stay."""
    drift: dict[str, dict[str, str]] = {}
    for part in ("labels", "annotations"):
        current = live["metadata"].get(part) or {}
        missing = {
            key: value for key, value in desired["metadata"][part].items() if current.get(key) != value
        }
        if missing:
            drift[part] = missing
    if drift:
        version = live["metadata"]["resourceVersion"]
        patch = {"metadata": {**drift, "resourceVersion": version}}
        await ctx.patch(NAMESPACE, live["metadata"]["name"], patch, namespace="")


def _blockers(live: Mapping[str, Any]) -> str:
    """Return what blocks the deletion of a namespace, from the namespace controller's conditions."""
    messages = [
        condition.get("message", "")
        for condition in live.get("status", {}).get("conditions", ())
        if condition.get("status") == "True"
    ]
    return f"namespace {live['metadata']['name']}: {' '.join(messages)}" if messages else ""
