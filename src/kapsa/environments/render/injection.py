"""Injection of an environment's image, variables and host into rendered objects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kapsa.adapters.errors import Refused, RenderFailed
from kapsa.adapters.manifests.manifest import Manifest, display_name
from kapsa.adapters.manifests.pod_templates import containers, main_containers, pod_spec
from kapsa.adapters.oci.image_reference import ImageReference
from kapsa.environments.render.inputs import Injected

__all__ = ["inject", "pin"]


def pin(objects: Sequence[Manifest], image: ImageReference, tag: str) -> bool:
    """Pin containers that run `image` with `tag` to its digest. Return whether there are any."""
    pinned = False
    for spec in filter(None, map(pod_spec, objects)):
        for container in containers(spec):
            used = _image_of(container)
            if used is not None and used.repository == image.repository and used.tag in ("", tag):
                container["image"] = image.pinned
                pinned = True
    return pinned


def inject(objects: Sequence[Manifest], injected: Injected) -> list[str]:
    """Inject image, variables and host into the objects, in place. Return warnings.

    Raises `RenderFailed` when it is not clear which container runs the image.
    """
    warnings: list[str] = []
    workloads = [(each, spec) for each in objects if (spec := pod_spec(each)) is not None]
    targets = [container for _, spec in workloads for container in main_containers(spec)]
    if injected.image is not None:
        targets = _set_image(workloads, injected.image)
        if not workloads:
            warnings.append(
                f"nothing runs the image {injected.image.repository}: the repository has no workload"
            )
    for container in targets:
        _add_variables(container, injected)
    if injected.host:
        for each in objects:
            _set_host(each, injected.host)
    return warnings


def _set_image(
    workloads: Sequence[tuple[Manifest, dict[str, Any]]], image: ImageReference
) -> list[dict[str, Any]]:
    """Set the image of the containers that run another version of it, or of the only container.

    Return those that are not init containers: they get the variables.
    """
    mains = [container for _, spec in workloads for container in main_containers(spec)]
    every = [container for _, spec in workloads for container in containers(spec)]
    best = max((_similarity(container, image) for container in every), default=0)
    chosen = [container for container in every if _similarity(container, image) == best] if best else mains
    if not best and len(mains) > 1:
        images = ", ".join(sorted({str(container.get("image")) for container in mains}))
        names = ", ".join(display_name(each) for each, _ in workloads)
        raise RenderFailed(
            f"it is not clear which container runs {image.repository}: {names} run {images}",
            hint=f"Use the image {image.path.rpartition('/')[2]}, with any tag, in the container that should run it",
            reason="ImageNotUsed",
        )
    for container in chosen:
        container["image"] = image.pinned
    main_ids = {id(container) for container in mains}
    return [container for container in chosen if id(container) in main_ids]


def _similarity(container: dict[str, Any], image: ImageReference) -> int:
    """Return the similarity of a container's image, from 0 (another image) to 3 (the same repository)."""
    used = _image_of(container)
    if used is None:
        return 0
    if used.repository == image.repository:
        return 3
    if used.path == image.path:
        return 2
    return int(used.path.rpartition("/")[2] == image.path.rpartition("/")[2])


def _image_of(container: dict[str, Any]) -> ImageReference | None:
    try:
        return ImageReference.parse(str(container.get("image", "")))
    except Refused:
        return None


def _add_variables(container: dict[str, Any], injected: Injected) -> None:
    if injected.variables:
        values = {variable.name: variable.value for variable in injected.variables}
        kept = [
            each
            for each in _list(container, "env")
            if not (isinstance(each, dict) and str(each.get("name")) in values)
        ]
        container["env"] = [*kept, *({"name": name, "value": value} for name, value in values.items())]
    if injected.env_from:
        sources = [dict(each) for each in injected.env_from]
        kept = [each for each in _list(container, "envFrom") if each not in sources]
        container["envFrom"] = [*kept, *sources]


def _list(container: dict[str, Any], field: str) -> list[Any]:
    listed = container.get(field)
    return listed if isinstance(listed, list) else []


def _set_host(manifest: Manifest, host: str) -> None:
    """Set the host of an Ingress that has one host or none. An Ingress with several is not changed."""
    spec = manifest.get("spec")
    if manifest.get("kind") != "Ingress" or not isinstance(spec, dict):
        return
    rules = [rule for rule in _list(spec, "rules") if isinstance(rule, dict)]
    secured = [entry for entry in _list(spec, "tls") if isinstance(entry, dict)]
    if len(_hosts(rules, secured)) > 1:
        return
    for rule in rules:
        rule["host"] = host
    for entry in secured:
        entry["hosts"] = [host]


def _hosts(rules: Iterable[dict[str, Any]], secured: Iterable[dict[str, Any]]) -> set[str]:
    hosts = {str(rule.get("host") or "") for rule in rules}
    hosts |= {str(host) for entry in secured for host in _list(entry, "hosts")}
    return hosts - {""}
