"""Parts of a pod that have an endpoint of their own: ephemeral containers, and the sizes of containers."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from kapsa.devcluster.embedded.strategies.pods.quality import quality_of_service
from kapsa.schemas.field_errors import FieldError, forbidden, invalid
from kapsa.schemas.go_format import quote

__all__ = ["PART_CHECKS", "keep_all_but_part"]

Object = dict[str, Any]

_MIRROR = "kubernetes.io/config.mirror"
_KEPT_METADATA = ("deletionTimestamp", "generation", "labels", "annotations", "finalizers", "ownerReferences")
_GROUPS = ("containers", "initContainers")
_SIZE = ("resources", "resizePolicy")
_COMPUTE = ("cpu", "memory")
_SIZES_ONLY = "only cpu and memory resources are mutable"
_INIT_SIZES_ONLY = "only cpu and memory resources for init or sidecar containers are mutable"


def keep_all_but_part(subresource: str, pod: Object, old: Object) -> None:
    """Restore everything of a pod that a write to one of its parts must not change."""
    spec = pod["spec"]
    if subresource == "resize":
        if any(len(spec.get(group) or ()) != len(old["spec"].get(group) or ()) for group in _GROUPS):
            # The validation names what is wrong.
            return
        part = {group: _resized(spec.get(group) or [], old["spec"].get(group) or []) for group in _GROUPS}
        part["resources"] = spec.get("resources")
    else:
        part = {"ephemeralContainers": spec.get("ephemeralContainers")}
    kept = {field: value for field, value in copy.deepcopy(old["spec"]).items() if field not in part}
    pod["spec"] = kept | {field: value for field, value in part.items() if value}
    _restore(pod, old, ("status",))
    _restore(pod["metadata"], old["metadata"], _KEPT_METADATA)


def _restore(target: Object, source: Object, fields: tuple[str, ...]) -> None:
    for field in fields:
        if field in source:
            target[field] = copy.deepcopy(source[field])
        else:
            target.pop(field, None)


def _resized(containers: list[Object], old: list[Object]) -> list[Object]:
    """Return the old containers with the new sizes; the new ones if they have other names."""
    if [each.get("name") for each in containers] != [each.get("name") for each in old]:
        return containers
    resized = []
    for container, previous in zip(containers, old, strict=True):
        kept = {field: value for field, value in previous.items() if field not in _SIZE}
        resized.append(kept | {field: container[field] for field in _SIZE if field in container})
    return resized


def _ephemeral_containers_errors(pod: Object, old: Object) -> list[FieldError]:
    path = "spec.ephemeralContainers"
    if _MIRROR in (old["metadata"].get("annotations") or {}):
        return [forbidden("[]", "static pods do not support ephemeral containers")]
    errors: list[FieldError] = []
    present = {each.get("name"): each for each in pod["spec"].get("ephemeralContainers") or ()}
    for container in old["spec"].get("ephemeralContainers") or ():
        title = f"existing ephemeral containers {quote(container['name'])} may not be"
        if container["name"] not in present:
            errors.append(forbidden(path, f"{title} removed\n"))
        elif not _same(container, present[container["name"]]):
            errors.append(forbidden(path, f"{title} changed\n"))
    return errors


def _resize_errors(pod: Object, old: Object) -> list[FieldError]:
    if _MIRROR in (old["metadata"].get("annotations") or {}):
        return [forbidden("[]", "static pods cannot be resized")]
    if (old["spec"].get("os") or {}).get("name") == "windows":
        return [forbidden("[]", "windows pods cannot be resized")]
    status = old.get("status") or {}
    quality = status.get("qosClass") or quality_of_service(old["spec"])
    errors: list[FieldError] = []
    if quality != quality_of_service(pod["spec"]):
        detail = "Pod QOS Class may not change as a result of resizing"
        errors.append(invalid("spec", status.get("qosClass") or "", detail))
    if not _node_can_resize(status):
        errors.append(forbidden("spec", "Pod running on node without support for resize"))
    errors += _pod_level_errors(pod["spec"], old["spec"])
    order = list(_order_errors(pod["spec"], old["spec"]))
    return errors + (order or list(_container_errors(pod["spec"], old["spec"])))


def _node_can_resize(status: Object) -> bool:
    for container in status.get("containerStatuses") or ():
        if (container.get("state") or {}).get("running") is not None:
            return container.get("resources") is not None
    return True


def _pod_level_errors(spec: Object, old: Object) -> Iterator[FieldError]:
    before, after = old.get("resources"), spec.get("resources")
    if not before:
        return
    if not after:
        yield forbidden("spec.resources", "pod-level resources cannot be removed")
        return
    for field in ("requests", "limits"):
        if (before.get(field) or {}).keys() - (after.get(field) or {}).keys():
            yield forbidden(f"spec.resources.{field}", f"pod-level resource {field} cannot be removed")


def _order_errors(spec: Object, old: Object) -> Iterator[FieldError]:
    for group in _GROUPS:
        after, before = spec.get(group) or [], old.get(group) or []
        if len(after) != len(before):
            yield forbidden(f"spec.{group}", f"{group} may not be added or removed on resize")
            continue
        for index, (container, previous) in enumerate(zip(after, before, strict=True)):
            if container.get("name") != previous.get("name"):
                where = f"spec.{group}[{index}].name"
                yield forbidden(where, f"{group} may not be renamed or reordered on resize")


def _container_errors(spec: Object, old: Object) -> Iterator[FieldError]:
    pairs = {
        group: list(zip(spec.get(group) or [], old.get(group) or [], strict=True))
        for group in reversed(_GROUPS)
    }
    for group, members in pairs.items():
        for index, (container, previous) in enumerate(members):
            yield from _removal_errors(container, previous, f"spec.{group}[{index}].resources")
    for container, previous in pairs["containers"]:
        if not _same(_without_compute(container, previous), previous):
            yield forbidden("spec", _SIZES_ONLY)
    for index, (container, previous) in enumerate(pairs["initContainers"]):
        if not _same(_without_compute(container, previous), previous):
            yield forbidden(f"spec.initContainers[{index}]", _INIT_SIZES_ONLY)


def _removal_errors(container: Object, previous: Object, path: str) -> Iterator[FieldError]:
    after, before = container.get("resources") or {}, previous.get("resources") or {}
    for field in ("requests", "limits"):
        if (before.get(field) or {}).keys() - (after.get(field) or {}).keys():
            yield forbidden(f"{path}.{field}", f"resource {field} cannot be removed")


def _without_compute(container: Object, previous: Object) -> Object:
    """Return a container with the processors and the memory that it had."""
    after, before = container.get("resources") or {}, previous.get("resources") or {}
    resources = {}
    for field in ("limits", "requests"):
        had, has = before.get(field) or {}, after.get(field) or {}
        amounts = {name: amount for name, amount in has.items() if name not in _COMPUTE}
        resources[field] = amounts | {name: had[name] for name in _COMPUTE if name in had}
    return {**container, "resources": {field: amounts for field, amounts in resources.items() if amounts}}


def _same(left: Any, right: Any) -> bool:
    """Compare two values as Go does, for which an empty map or list is the same as none."""
    return bool(_bare(left) == _bare(right))


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        members = {field: _bare(each) for field, each in value.items()}
        return {field: each for field, each in members.items() if each not in (None, {}, [])}
    return [_bare(each) for each in value] if isinstance(value, list) else value


PART_CHECKS = {"ephemeralcontainers": _ephemeral_containers_errors, "resize": _resize_errors}
"""By subresource: the function that returns the errors of a write to a part of a pod."""
