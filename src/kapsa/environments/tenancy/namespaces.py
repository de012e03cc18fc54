"""Namespaces that are created for a resource: claimed and deleted only if the resource owns them.

The status decides: a resource owns the namespace that its status records by name and UID. A label alone proves
nothing, since anybody who may label a namespace can copy it. So the status records the name first, while no
namespace has it, then the namespace is created with a label of the resource's UID, then the status records the
namespace's UID. After a crash in between, a namespace of that name with the label is the one that was created.
Any other namespace is refused: never adopted, never changed, never deleted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from kapsa.environments.names import OWNER, OWNER_UID
from kapsa.environments.resources import NamespaceStatus
from kapsa.environments.settings import Settings
from kapsa.runtime import AlreadyExists, Cache, Context, CustomResource, Key, NotFound, StoredObject

__all__ = [
    "NAMESPACE",
    "ChildMapping",
    "ClaimedNamespace",
    "ForeignNamespaceError",
    "NamespaceChangingError",
    "NamespaceIntendedError",
    "claim",
    "owners",
    "refuse_foreign",
    "refuse_reserved",
    "release",
]

NAMESPACE = "v1/Namespace"


class ForeignNamespaceError(Exception):
    """A namespace of the required name exists, and the resource does not own it; or no resource may own it."""

    reason = "NamespaceNotOurs"


class NamespaceChangingError(Exception):
    """The namespace is being deleted, or is about to be created."""

    reason = "NamespaceTerminating"


class NamespaceIntendedError(NamespaceChangingError):
    """The namespace does not exist. Once the status has recorded its name, the next run creates it."""

    reason = "NamespaceCreating"


class ClaimedNamespace(msgspec.Struct, frozen=True):
    """A namespace that the resource owns."""

    name: str
    uid: str


async def claim(
    ctx: Context[Any],
    name: str,
    settings: Settings,
    *,
    labels: Mapping[str, str],
    annotations: Mapping[str, str] | None = None,
) -> ClaimedNamespace:
    """Create or correct the namespace, with these labels and annotations and the marks of its owner.

    The status records it. Raises ForeignNamespaceError if the resource does not own it or its name is reserved, and
    NamespaceChangingError while it is being deleted or about to be created.
    """
    refuse_reserved(name, settings)
    desired = _manifest(ctx, name, labels, annotations or {})
    live = ctx.get(NAMESPACE, name, namespace="", track=True) or await _live(ctx, name)
    if live is None:
        live = await _create_intended(ctx, desired)
    recorded: NamespaceStatus | None = ctx.status.namespace
    try:
        refuse_foreign(live, ctx.stored.uid, recorded)
    except ForeignNamespaceError:
        if recorded is not None and not recorded.uid:
            ctx.status.namespace = None  # otherwise its label alone could make it ours later
        raise
    if live["metadata"].get("deletionTimestamp"):
        raise NamespaceChangingError(
            f"namespace {name} is being deleted; it is created again once it is gone"
        )
    await _correct(ctx, live, desired)
    ctx.status.namespace = NamespaceStatus(name=name, uid=live["metadata"]["uid"])
    return ClaimedNamespace(name, live["metadata"]["uid"])


async def release(ctx: Context[Any]) -> str:
    """Delete the namespace that the status records, and no other.

    Returns what blocks the deletion; empty once it is gone.
    """
    recorded: NamespaceStatus | None = ctx.status.namespace
    waits_for = await _delete(ctx, recorded) if recorded is not None else ""
    if not waits_for:
        await _report_strangers(ctx, recorded)
    return waits_for


async def _delete(ctx: Context[Any], recorded: NamespaceStatus) -> str:
    name = recorded.name
    ctx.track(NAMESPACE, name, namespace="")
    live = await _live(ctx, name)
    if live is None:
        return ""
    try:
        refuse_foreign(live, ctx.stored.uid, recorded)
    except ForeignNamespaceError as refusal:
        _report_kept(ctx, name, str(refusal))
        return ""
    if not live["metadata"].get("deletionTimestamp"):
        await ctx.delete(live, propagation="Background")
        live = await _live(ctx, name)
        if live is None:
            return ""
    return _blockers(live) or f"namespace {name} is being deleted"


async def _report_strangers(ctx: Context[Any], recorded: NamespaceStatus | None) -> None:
    """Report namespaces that have the label of this resource although they were not created for it."""
    listed = await ctx.client.list(NAMESPACE, label_selector={OWNER_UID: ctx.stored.uid})
    for each in listed.items:
        name = each["metadata"]["name"]
        if recorded is None or name != recorded.name:
            _report_kept(
                ctx,
                name,
                f"namespace {name} has the label {OWNER_UID} of this resource, but was not created for it: remove the "
                "label",
            )


def _report_kept(ctx: Context[Any], name: str, why: str) -> None:
    ctx.log.warning("namespace not deleted: the resource does not own it", kept=name, why=why)
    ctx.event("Warning", "NamespaceKept", f"not deleted: {why}", action="Delete")


def owners(stored: StoredObject) -> Iterable[Key]:
    """Map a namespace to the resource it was created for, by its annotation. For a Watch.

    Not for what is in namespaces: a team can write any annotation on objects in its own, and each change of such an
    object would run the resource of another team. See `ChildMapping`.
    """
    namespace, _, name = stored.annotations().get(OWNER, "").partition("/")
    return [Key(namespace, name)] if namespace and name else []


class ChildMapping:
    """A mapping of objects to the resource they were created for, by their annotation. For a Watch.

    The annotation counts only in the namespace that the status of that resource records, and in namespaces of the
    operator, where teams cannot write.
    """

    def __init__(self, kind: type[CustomResource[Any, Any]], *own: str) -> None:
        self._kind = kind
        self._own = own

    def __call__(self, stored: StoredObject, cache: Cache) -> Iterable[Key]:
        return [
            key
            for key in owners(stored)
            if stored.namespace in self._own
            or self._records(cache.get(self._kind.gvk, key), stored.namespace)
        ]

    def _records(self, owner: StoredObject | None, namespace: str) -> bool:
        recorded = self._kind.decode(owner.raw).status.namespace if owner is not None else None
        return recorded is not None and recorded.name == namespace


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


async def _create_intended(ctx: Context[Any], desired: dict[str, Any]) -> dict[str, Any]:
    """Create the namespace if the status announces it; else announce it for the next run.

    Apply would take over a namespace that another client creates at the same time.
    """
    name, recorded = desired["metadata"]["name"], ctx.status.namespace
    if recorded != (intended := NamespaceStatus(name=name)):
        ctx.status.namespace = intended
        deleted = recorded is not None and recorded.uid
        raise NamespaceIntendedError(
            f"namespace {name} was deleted; creating it again" if deleted else f"creating namespace {name}"
        )
    try:
        return await ctx.create(desired, owner=False)
    except AlreadyExists:
        existing: dict[str, Any] = await ctx.client.get(NAMESPACE, desired["metadata"]["name"])
        return existing


def refuse_foreign(live: Mapping[str, Any], uid: str, recorded: NamespaceStatus | None) -> None:
    """Raise ForeignNamespaceError unless the resource with this UID owns the namespace by its status."""
    metadata = live["metadata"]
    name, owner = metadata["name"], (metadata.get("labels") or {}).get(OWNER_UID)
    if owner != uid:
        whose = (metadata.get("annotations") or {}).get(OWNER) if owner else None
        raise ForeignNamespaceError(
            f"namespace {name} already exists and belongs to {whose or 'another owner'}: delete it, or choose "
            "another name"
        )
    if recorded is None or recorded.name != name:
        raise ForeignNamespaceError(
            f"namespace {name} has the label {OWNER_UID} of this resource, but was not created for it: delete it, or "
            "choose another name"
        )
    if recorded.uid and recorded.uid != metadata["uid"]:
        raise ForeignNamespaceError(
            f"namespace {name} is not the one in the status (uid {metadata['uid']}, not {recorded.uid}): delete it"
        )


def refuse_reserved(name: str, settings: Settings) -> None:
    """Raise ForeignNamespaceError for the name of a namespace of the operator or of the cluster itself.

    The people of a team would read Secrets there, such as the credentials to push images.
    """
    gateway = settings.gateway.partition("/")[0]
    own = (settings.namespace, settings.build_namespace, settings.ingress_namespace, gateway)
    if name in ("default", *own) or name.startswith("kube-"):
        raise ForeignNamespaceError(
            f"namespace {name} is reserved for the operator or the cluster: choose another name"
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
