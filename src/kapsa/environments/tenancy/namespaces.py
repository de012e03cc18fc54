"""Namespaces that are made for a resource: claimed only if they are its own, deleted only if they still are.

A namespace is the resource's own if its label says so (the owner's UID) and, once the status remembers a namespace, if it
is that very one. One with another owner, or none, is refused: never adopted, never changed, never deleted.
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
    """A namespace of the name that we need belongs to somebody else."""

    reason = "NamespaceNotOurs"


class NamespaceChangingError(Exception):
    """The namespace goes, or has gone, by somebody's hand. It is made anew once that is over."""

    reason = "NamespaceTerminating"


class ClaimedNamespace(msgspec.Struct, frozen=True):
    """A namespace that is ours."""

    name: str
    uid: str


async def claim(
    ctx: Context[Any], name: str, *, labels: Mapping[str, str], annotations: Mapping[str, str] | None = None
) -> ClaimedNamespace:
    """Have the namespace, with these labels and annotations and the marks of its owner; the status remembers it.

    :raises ForeignNamespaceError: it exists and is not ours.
    :raises NamespaceChangingError: it is on its way out; the watch on namespaces tells when it is gone.
    """
    wanted = _manifest(ctx, name, labels, annotations or {})
    remembered: NamespaceStatus | None = ctx.status.namespace
    live = ctx.get(NAMESPACE, name, namespace="")
    if live is None and remembered is not None and (live := await _live(ctx, name)) is None:
        # First forget the old one, then make a new one: were both done at once, a crash in between would leave a
        # namespace that the status takes for a stranger's.
        ctx.status.namespace = None
        raise NamespaceChangingError(f"namespace {name} was deleted; it is made again")
    if live is None:
        live = await _create(ctx, wanted)
    refuse_foreign(live, ctx.stored.uid, remembered)
    if live["metadata"].get("deletionTimestamp"):
        raise NamespaceChangingError(f"namespace {name} is being deleted; it is made again once it is gone")
    await _correct(ctx, live, wanted)
    ctx.status.namespace = NamespaceStatus(name=name, uid=live["metadata"]["uid"])
    return ClaimedNamespace(name, live["metadata"]["uid"])


async def release(ctx: Context[Any], name: str) -> str:
    """Delete the namespace if it is ours. Empty once it is gone; else what it waits for."""
    live = await _live(ctx, name)
    if live is None:
        return ""
    try:
        refuse_foreign(live, ctx.stored.uid, ctx.status.namespace)
    except ForeignNamespaceError as refusal:
        ctx.log.info("namespace left alone", namespace=name, why=str(refusal))
        return ""
    if not live["metadata"].get("deletionTimestamp"):
        await ctx.delete(live, propagation="Background")
        live = await _live(ctx, name)
        if live is None:
            return ""
    return _blockers(live) or f"namespace {name} is being deleted"


def owners(stored: StoredObject) -> Iterable[tuple[str, str]]:
    """For a Watch: the resource that an object was made for, by its annotation."""
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
    """As the server has it: the cache may not know yet what a write whose answer was lost has made."""
    with contextlib.suppress(NotFound):
        return await ctx.client.get(NAMESPACE, name)
    return None


async def _create(ctx: Context[Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """Not by apply: that would take over a stranger's namespace that appeared in this very moment."""
    try:
        return await ctx.create(wanted, owner=False)
    except AlreadyExists:
        found: dict[str, Any] = await ctx.client.get(NAMESPACE, wanted["metadata"]["name"])
        return found


def refuse_foreign(live: Mapping[str, Any], uid: str, remembered: NamespaceStatus | None) -> None:
    """Let pass the namespace that was made for the resource of this UID.

    :raises ForeignNamespaceError: it is anybody else's.
    """
    metadata = live["metadata"]
    name, owner = metadata["name"], (metadata.get("labels") or {}).get(OWNER_UID)
    if owner != uid:
        whose = (metadata.get("annotations") or {}).get(OWNER) if owner else None
        raise ForeignNamespaceError(
            f"namespace {name} belongs to {whose or 'somebody else'} and is left alone: "
            "delete it, or choose other names"
        )
    if remembered is not None and remembered.name == name and remembered.uid != metadata["uid"]:
        raise ForeignNamespaceError(
            f"namespace {name} is not the one that was made (uid {metadata['uid']}, not {remembered.uid}) and is "
            "left alone: delete it"
        )


async def _correct(ctx: Context[Any], live: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Put back labels and annotations that somebody changed; those of others stay."""
    drift: dict[str, dict[str, str]] = {}
    for part in ("labels", "annotations"):
        found = live["metadata"].get(part) or {}
        missing = {key: value for key, value in wanted["metadata"][part].items() if found.get(key) != value}
        if missing:
            drift[part] = missing
    if drift:
        version = live["metadata"]["resourceVersion"]
        patch = {"metadata": {**drift, "resourceVersion": version}}
        await ctx.patch(NAMESPACE, live["metadata"]["name"], patch, namespace="")


def _blockers(live: Mapping[str, Any]) -> str:
    """What keeps a namespace from going, in the namespace controller's own words."""
    told = [
        condition.get("message", "")
        for condition in live.get("status", {}).get("conditions", ())
        if condition.get("status") == "True"
    ]
    return f"namespace {live['metadata']['name']}: {' '.join(told)}" if told else ""
