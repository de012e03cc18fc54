"""ControllerRevisions: the template history of StatefulSets and DaemonSets, for `kubectl rollout undo`."""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from kapsa.devcluster.embedded.controllers.machinery.kinds import CONTROLLER_REVISION, Kind, Object
from kapsa.devcluster.embedded.controllers.machinery.ownership import controller_reference
from kapsa.devcluster.embedded.controllers.machinery.plan import Create, Delete, Update, WritePlan
from kapsa.devcluster.embedded.controllers.workloads.templates import safe_hash

HASH_LABEL = "controller.kubernetes.io/hash"
REVISION_LABEL = "controller-revision-hash"


class History(msgspec.Struct):
    """The revisions of an owner, oldest first, and the one of its current template."""

    revisions: list[Object]
    latest: Object

    def named(self, name: str) -> Object | None:
        """Return the revision of a name, or None."""
        return next((r for r in [*self.revisions, self.latest] if r["metadata"]["name"] == name), None)


def sort(revisions: list[Object]) -> list[Object]:
    """Sort revisions, oldest first."""
    return sorted(
        revisions,
        key=lambda r: (r["revision"], r["metadata"].get("creationTimestamp") or "", r["metadata"]["name"]),
    )


def record(plan: WritePlan, kind: Kind, owner: Object, revisions: list[Object], *, label: str) -> History:
    """Return the owner's history with its current template as the newest revision, and plan the write."""
    revisions = sort(revisions)
    data = _data(owner)
    number = max((r["revision"] for r in revisions), default=0) + 1
    equal = [r for r in revisions if r.get("data") == data]
    if equal and equal[-1] is revisions[-1]:
        return History(revisions, revisions[-1])
    if equal:
        # Rolled back: the old revision becomes the newest again.
        latest = {**equal[-1], "revision": number}
        plan.do(Update(CONTROLLER_REVISION, latest))
        return History([r for r in revisions if r is not equal[-1]] + [latest], latest)
    latest = _new(kind, owner, data, number, label)
    plan.do(Create(CONTROLLER_REVISION, latest, exists_ok=True))
    return History([*revisions, latest], latest)


def _data(owner: Object) -> dict[str, Any]:
    return {"spec": {"template": {**owner["spec"]["template"], "$patch": "replace"}}}


def _new(kind: Kind, owner: Object, data: dict[str, Any], number: int, label: str) -> Object:
    digest = safe_hash(data, (owner.get("status") or {}).get("collisionCount") or 0)
    metadata = owner["metadata"]
    labels = (owner["spec"]["template"].get("metadata") or {}).get("labels") or {}
    own: dict[str, Any] = {
        "name": f"{metadata['name'][:223]}-{digest}",
        "namespace": metadata["namespace"],
        "labels": {**labels, label: digest},
        "ownerReferences": [controller_reference(kind, owner)],
    }
    if metadata.get("annotations"):
        own["annotations"] = dict(metadata["annotations"])
    return {
        "apiVersion": CONTROLLER_REVISION.api_version,
        "kind": CONTROLLER_REVISION.kind,
        "metadata": own,
        "data": copy.deepcopy(data),
        "revision": number,
    }


def template(revision: Object) -> Object:
    """Return the pod template of a revision."""
    copied = copy.deepcopy(revision["data"]["spec"]["template"])
    copied.pop("$patch", None)
    return dict(copied)


def truncate(plan: WritePlan, history: History, live: set[str], limit: int) -> None:
    """Plan to delete the oldest unused revisions beyond the limit."""
    unused = [r for r in history.revisions if r["metadata"]["name"] not in live and r is not history.latest]
    for revision in unused[: max(0, len(unused) - limit)]:
        plan.do(Delete(CONTROLLER_REVISION, revision))
