"""Pod templates: the pods that workloads of all kinds create."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["containers", "entries", "main_containers", "pod_metadata", "pod_spec", "reads_secret"]

_TEMPLATED = {
    ("apps", "Deployment"),
    ("apps", "StatefulSet"),
    ("apps", "DaemonSet"),
    ("apps", "ReplicaSet"),
    ("batch", "Job"),
    ("", "ReplicationController"),
}


def pod_spec(manifest: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the spec of the pods that an object creates, or None if it creates none."""
    template = _template(manifest)
    spec = template.get("spec") if template is not None else None
    return spec if isinstance(spec, dict) else None


def pod_metadata(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of the pods that an object creates."""
    template = _template(manifest)
    metadata = template.get("metadata") if template is not None else None
    return metadata if isinstance(metadata, dict) else {}


def main_containers(spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the containers, without init and ephemeral ones."""
    yield from entries(spec, "containers")


def containers(spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield all containers, including init and ephemeral ones."""
    for field in ("containers", "initContainers", "ephemeralContainers"):
        yield from entries(spec, field)


def entries(part: Mapping[str, Any], field: str) -> Iterator[dict[str, Any]]:
    """Yield the mappings in a list field, such as `env`. Other values are skipped."""
    listed = part.get(field)
    yield from (each for each in listed if isinstance(each, dict)) if isinstance(listed, list) else ()


def reads_secret(spec: Mapping[str, Any], name: str) -> bool:
    """Return whether a volume or a variable of a pod takes the content of a Secret.

    Drivers refer to Secrets in fields of their own, so the name counts wherever it is, but not as that of the volume
    or the variable itself.
    """
    sources: list[Any] = [_without_name(volume) for volume in entries(spec, "volumes")]
    for container in containers(spec):
        sources += [variable.get("valueFrom") for variable in entries(container, "env")]
        sources.append(container.get("envFrom"))
    return any(_holds_text(source, name) for source in sources)


def _without_name(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in entry.items() if field != "name"}


def _holds_text(part: Any, text: str) -> bool:
    if isinstance(part, dict):
        return any(_holds_text(each, text) for each in part.values())
    if isinstance(part, list):
        return any(_holds_text(each, text) for each in part)
    return bool(part == text)


def _template(manifest: Mapping[str, Any]) -> dict[str, Any] | None:
    group = str(manifest.get("apiVersion", "")).rpartition("/")[0]
    kind = manifest.get("kind")
    template: Any = manifest
    if (group, kind) == ("batch", "CronJob"):
        path: tuple[str, ...] = ("spec", "jobTemplate", "spec", "template")
    elif (group, kind) in _TEMPLATED:
        path = ("spec", "template")
    elif (group, kind) == ("", "Pod"):
        path = ()
    else:
        return None
    for part in path:
        template = template.get(part) if isinstance(template, dict) else None
    return template if isinstance(template, dict) else None
