"""The kinds of objects in an environment's namespace, and the marks of ownership that each carries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kapsa.environments.names import OWNER, OWNER_UID
from kapsa.environments.render.filter import ALLOWED_KINDS
from kapsa.environments.step_run import Manifest, StepRun

__all__ = [
    "BUILD_KINDS",
    "JOB",
    "KPACK_IMAGE",
    "POLICY_KINDS",
    "RENDERED_KINDS",
    "RESOURCE_QUOTA",
    "controller_uid",
    "kind_string",
    "marked",
    "shown",
]

RESOURCE_QUOTA = "v1/ResourceQuota"
POLICY_KINDS = (
    RESOURCE_QUOTA,
    "v1/LimitRange",
    "networking.k8s.io/v1/NetworkPolicy",
    "v1/ServiceAccount",
)

RENDERED_KINDS = ALLOWED_KINDS
"""The kinds that may be rendered, in the order in which they are applied."""

KPACK_IMAGE = "kpack.io/v1alpha2/Image"
JOB = "batch/v1/Job"
BUILD_KINDS = (JOB, KPACK_IMAGE, "v1/Secret", "v1/ServiceAccount")
"""The kinds of a build's objects in the build namespace."""


def marked(visit: StepRun, manifest: Manifest, labels: Mapping[str, str] | None = None) -> Manifest:
    """Return the object with the marks of its owner, in the environment's namespace."""
    metadata: dict[str, Any] = dict(manifest.get("metadata") or {})
    metadata["namespace"] = visit.namespace
    metadata["labels"] = {
        **(metadata.get("labels") or {}),
        **(labels or {}),
        OWNER_UID: visit.environment.metadata.uid,
    }
    metadata["annotations"] = {**(metadata.get("annotations") or {}), OWNER: str(visit.ctx.key)}
    return {**manifest, "metadata": metadata}


def kind_string(manifest: Mapping[str, Any]) -> str:
    """Return the kind of an object in the form that the client takes."""
    return f"{manifest['apiVersion']}/{manifest['kind']}"


def controller_uid(manifest: Mapping[str, Any]) -> str | None:
    """Return the UID of the object that controls this one; None if there is none."""
    owners = manifest["metadata"].get("ownerReferences") or ()
    return next((each["uid"] for each in owners if each.get("controller")), None)


def shown(manifest: Mapping[str, Any]) -> str:
    """Return the kind and name of an object, for messages."""
    return f"{manifest.get('kind', 'object')} {(manifest.get('metadata') or {}).get('name', '(unnamed)')}"
