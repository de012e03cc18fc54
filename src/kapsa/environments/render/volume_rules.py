"""Volume rules: a repository mounts only what its namespace has, never storage that it names by an address.

The volumes of a cluster belong to many tenants. A claim gets a new one from the storage class; a volume that is named
directly, such as an NFS export or a disk, may hold the data of another tenant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kapsa.adapters.manifests.claim_templates import claim_templates
from kapsa.adapters.manifests.manifest import Manifest
from kapsa.adapters.manifests.pod_templates import entries

__all__ = ["claim_refusals", "volume_refusals"]

_PLAIN = {
    "configMap", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret",
}  # fmt: skip
"""The types of volumes with content of the namespace. Images are under the rules of the Registry."""
_PROJECTED = {"configMap", "downwardAPI", "secret"}
_HOST_PATH = "hostPath"
"""The type that Pod Security refuses in its own words."""


def volume_refusals(pod: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is not allowed in the volumes of a pod."""
    for volume in entries(pod, "volumes"):
        name = volume.get("name", "?")
        for kind in sorted(_given(volume) - _PLAIN - {"name", _HOST_PATH}):
            yield (
                f"volume {name} is of type {kind}, which could reach storage of others; use a persistentVolumeClaim, "
                "or an emptyDir, configMap or secret"
            )
        projected = volume.get("projected")
        for source in entries(projected, "sources") if isinstance(projected, dict) else ():
            for kind in sorted(_given(source) - _PROJECTED):
                yield _projection_refusal(name, kind)


def _projection_refusal(name: str, kind: str) -> str:
    if kind == "serviceAccountToken":
        return f"volume {name} would mount a token of the cluster"
    return f"volume {name} projects a {kind}; use a configMap, a secret or the downwardAPI"


def claim_refusals(manifest: Manifest) -> Iterator[str]:
    """Yield what is not allowed in a claim, or in those that an object or one of its pods creates."""
    if manifest.get("kind") == "PersistentVolumeClaim":
        yield from _claim_refusals(manifest.get("spec"), "")
    for path, template in claim_templates(manifest):
        yield from _claim_refusals(template.get("spec"), path)


def _claim_refusals(spec: Any, path: str) -> Iterator[str]:
    if not isinstance(spec, dict):
        return
    for field in ("volumeName", "selector"):
        if spec.get(field) not in (None, ""):
            yield f"{path}spec.{field} could bind a volume of another tenant; leave it out"
    reference = spec.get("dataSourceRef")
    if isinstance(reference, dict) and reference.get("namespace"):
        yield f"{path}spec.dataSourceRef refers to another namespace"


def _given(part: Mapping[str, Any]) -> set[str]:
    """Return the fields that have a value: the API server ignores those without."""
    return {str(field) for field, value in part.items() if value is not None}
