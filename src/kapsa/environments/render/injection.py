"""Putting an environment's image, variables and host into objects that were not made with them."""

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
    """Change containers of `image` that carry `tag` to run it by digest. Returns whether there was one."""
    found = False
    for spec in filter(None, map(pod_spec, objects)):
        for container in containers(spec):
            used = _image_of(container)
            if used is not None and used.repository == image.repository and used.tag in ("", tag):
                container["image"] = image.pinned
                found = True
    return found


def inject(objects: Sequence[Manifest], injected: Injected) -> list[str]:
    """Put image, variables and host into the objects. Returns what somebody should know.

    :raises RenderFailed: it is not clear which container runs the image.
    """
    warnings: list[str] = []
    workloads = [(each, spec) for each in objects if (spec := pod_spec(each)) is not None]
    ours = [container for _, spec in workloads for container in main_containers(spec)]
    if injected.image is not None:
        ours = _with_image(workloads, injected.image)
        if not workloads:
            warnings.append(f"nothing runs the image {injected.image.repository}: there is no workload")
    for container in ours:
        _add_variables(container, injected)
    if injected.host:
        for each in objects:
            _set_host(each, injected.host)
    return warnings


def _with_image(
    workloads: Sequence[tuple[Manifest, dict[str, Any]]], image: ImageReference
) -> list[dict[str, Any]]:
    """Make the containers that run another version of the image, or the only one there is, run it.

    Returns those of them that do the work: they get the variables.
    """
    mains = [container for _, spec in workloads for container in main_containers(spec)]
    every = [container for _, spec in workloads for container in containers(spec)]
    closest = max((_closeness(container, image) for container in every), default=0)
    chosen = (
        [container for container in every if _closeness(container, image) == closest] if closest else mains
    )
    if not closest and len(mains) > 1:
        images = ", ".join(sorted({str(container.get("image")) for container in mains}))
        where = ", ".join(display_name(each) for each, _ in workloads)
        raise RenderFailed(
            f"it is not clear which container runs {image.repository}: {where} run {images}",
            hint=f"Name the image {image.path.rpartition('/')[2]} (any tag) in the container that should run it",
            reason="ImageNotUsed",
        )
    for container in chosen:
        container["image"] = image.pinned
    working = {id(container) for container in mains}
    return [container for container in chosen if id(container) in working]


def _closeness(container: dict[str, Any], image: ImageReference) -> int:
    """How likely it is that this container is meant to run the image; 0 is not at all."""
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
        given = {variable.name: variable.value for variable in injected.variables}
        kept = [
            each
            for each in _list(container, "env")
            if not (isinstance(each, dict) and each.get("name") in given)
        ]
        container["env"] = [*kept, *({"name": name, "value": value} for name, value in given.items())]
    if injected.env_from:
        sources = [dict(each) for each in injected.env_from]
        kept = [each for each in _list(container, "envFrom") if each not in sources]
        container["envFrom"] = [*kept, *sources]


def _list(container: dict[str, Any], field: str) -> list[Any]:
    listed = container.get(field)
    return listed if isinstance(listed, list) else []


def _set_host(manifest: Manifest, host: str) -> None:
    """Give an Ingress with one host, or none, the environment's. One with several means something by them: it is left."""
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
    found = {str(rule.get("host") or "") for rule in rules}
    found |= {str(host) for entry in secured for host in _list(entry, "hosts")}
    return found - {""}
