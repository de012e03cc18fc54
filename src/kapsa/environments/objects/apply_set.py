"""The ApplySet of an environment: which objects in its namespace came out of its repository, as kubectl's specification has it.

A ConfigMap in the namespace is the parent; members have a label with its identity. What has the label and is no longer
rendered is pruned. Other tools see from the parent whose the members are, and leave them alone:
https://kubernetes.io/docs/reference/labels-annotations-taints/#applyset-kubernetes-io-id
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable

from kapsa.environments.names import MANAGED_BY, OPERATOR
from kapsa.environments.objects.children import RENDERED_KINDS, kind_string, marked
from kapsa.environments.visit import Manifest, Visit

__all__ = ["PARENT", "PART_OF", "members", "membership", "parent"]

PARENT = "kapsa-applyset"
"""The name of the parent."""
PART_OF = "applyset.kubernetes.io/part-of"
_ID = "applyset.kubernetes.io/id"
_TOOLING = "applyset.kubernetes.io/tooling"
_GROUP_KINDS = "applyset.kubernetes.io/contains-group-kinds"


def membership(visit: Visit) -> dict[str, str]:
    """The label of all members."""
    return {PART_OF: _identity(visit.place)}


def members(visit: Visit) -> list[Manifest]:
    """The members as the cluster has them, those first that others may need least."""
    return [
        {
            "apiVersion": kind.rpartition("/")[0],
            "kind": kind.rpartition("/")[2],
            "metadata": found["metadata"],
        }
        for kind in reversed(RENDERED_KINDS)
        for found in visit.ctx.list(kind, namespace=visit.place, labels=membership(visit))
    ]


def parent(visit: Visit, objects: Iterable[Manifest]) -> Manifest:
    """The parent of an ApplySet with these objects. It must name all their kinds before there is one of them."""
    kinds = sorted({_group_kind(kind_string(each)) for each in objects})
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": PARENT,
            "labels": {_ID: _identity(visit.place)},
            "annotations": {_TOOLING: f"{OPERATOR}/v1", _GROUP_KINDS: ",".join(kinds)},
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
