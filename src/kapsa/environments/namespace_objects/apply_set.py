"""The ApplySet of an environment: the objects in its namespace that were rendered from its repository.

It follows kubectl's specification. A ConfigMap in the namespace is the parent, and members have a label with
its ID. An object with the label that is no longer rendered is pruned. Other tools recognize the owner of the
members by the parent:
https://kubernetes.io/docs/reference/labels-annotations-taints/#applyset-kubernetes-io-id
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable

from kapsa.environments.names import MANAGED_BY, OPERATOR
from kapsa.environments.namespace_objects.children import RENDERED_KINDS, kind_string, marked
from kapsa.environments.step_run import Manifest, StepRun

__all__ = ["PARENT", "PART_OF", "RENDERED_FROM", "applied_commit", "members", "membership", "parent"]

PARENT = "kapsa-applyset"
"""The name of the parent."""
PART_OF = "applyset.kubernetes.io/part-of"
RENDERED_FROM = "catalyst.dev/rendered-from"
"""An annotation of the parent of objects with generated values: a digest of their inputs."""
_COMMIT = "catalyst.dev/commit"
"""An annotation of the parent: the commit whose objects were applied last, perhaps not all of them."""
_ID = "applyset.kubernetes.io/id"
_TOOLING = "applyset.kubernetes.io/tooling"
_GROUP_KINDS = "applyset.kubernetes.io/contains-group-kinds"


def membership(visit: StepRun) -> dict[str, str]:
    """Return the label of all members."""
    return {PART_OF: _identity(visit.namespace)}


def members(visit: StepRun) -> list[Manifest]:
    """Return the members in the cluster, in the order in which they can be deleted."""
    return [
        {
            "apiVersion": kind.rpartition("/")[0],
            "kind": kind.rpartition("/")[2],
            "metadata": member["metadata"],
        }
        for kind in reversed(RENDERED_KINDS)
        for member in visit.ctx.list(kind, namespace=visit.namespace, labels=membership(visit))
    ]


def applied_commit(visit: StepRun) -> str | None:
    """Return the commit that members may come from, recorded before the first of them was applied."""
    live = visit.ctx.get("v1/ConfigMap", PARENT, namespace=visit.namespace)
    annotations = (live["metadata"].get("annotations") or {}) if live is not None else {}
    return annotations.get(_COMMIT) or visit.environment.status.commit_sha


def parent(visit: StepRun, objects: Iterable[Manifest]) -> Manifest:
    """Return the parent of an ApplySet with these objects.

    It must list their kinds before the first one is created.
    """
    kinds = sorted({_group_kind(kind_string(each)) for each in objects})
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": PARENT,
            "labels": {_ID: _identity(visit.namespace)},
            "annotations": {
                _TOOLING: f"{OPERATOR}/v1",
                _GROUP_KINDS: ",".join(kinds),
                _COMMIT: visit.commit,
                **({RENDERED_FROM: visit.render_inputs} if visit.render_inputs else {}),
            },
        },
    }
    return marked(visit, manifest, {MANAGED_BY: OPERATOR})


def _identity(namespace: str) -> str:
    digest = hashlib.sha256(f"{PARENT}.{namespace}.ConfigMap.".encode()).digest()
    return f"applyset-{base64.urlsafe_b64encode(digest).decode().rstrip('=')}-v1"


def _group_kind(kind: str) -> str:
    version, _, name = kind.rpartition("/")
    group = version.rpartition("/")[0]
    return f"{name}.{group}" if group else name
