"""Where objects hold the pods that they make: one way to get at the pod spec of any workload."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["containers", "entries", "main_containers", "pod_metadata", "pod_spec"]

_TEMPLATED = {
    ("apps", "Deployment"),
    ("apps", "StatefulSet"),
    ("apps", "DaemonSet"),
    ("apps", "ReplicaSet"),
    ("batch", "Job"),
    ("", "ReplicationController"),
}


def pod_spec(manifest: Mapping[str, Any]) -> dict[str, Any] | None:
    """The spec of the pods that an object makes; None if it makes none."""
    template = _template(manifest)
    spec = template.get("spec") if template is not None else None
    return spec if isinstance(spec, dict) else None


def pod_metadata(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of the pods that an object makes."""
    template = _template(manifest)
    metadata = template.get("metadata") if template is not None else None
    return metadata if isinstance(metadata, dict) else {}


def main_containers(spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The containers that do the work."""
    yield from entries(spec, "containers")


def containers(spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """All containers: those that do the work, those that prepare it, and those that look into it."""
    for field in ("containers", "initContainers", "ephemeralContainers"):
        yield from entries(spec, field)


def entries(part: Mapping[str, Any], field: str) -> Iterator[dict[str, Any]]:
    """The mappings in a list, such as a container's variables. What is none is left out."""
    listed = part.get(field)
    yield from (each for each in listed if isinstance(each, dict)) if isinstance(listed, list) else ()


def _template(manifest: Mapping[str, Any]) -> dict[str, Any] | None:
    group = str(manifest.get("apiVersion", "")).rpartition("/")[0]
    kind = manifest.get("kind")
    found: Any = manifest
    if (group, kind) == ("batch", "CronJob"):
        path: tuple[str, ...] = ("spec", "jobTemplate", "spec", "template")
    elif (group, kind) in _TEMPLATED:
        path = ("spec", "template")
    elif (group, kind) == ("", "Pod"):
        path = ()
    else:
        return None
    for part in path:
        found = found.get(part) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else None
