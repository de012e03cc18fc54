"""The scale subresource: replicas of any workload through one kind, autoscaling/v1 Scale."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.wire import status_errors as errors
from kapsa.schemas import field_errors, go_format

__all__ = ["has_replicas", "scale_of", "with_replicas"]

Object = dict[str, Any]


def _paths(info: ResourceInfo) -> tuple[list[str], list[str], list[str]]:
    """Return the paths of the desired replicas, the observed replicas and the selector in an object."""
    if info.definition is None:
        return ["spec", "replicas"], ["status", "replicas"], ["spec", "selector"]
    for version in info.definition["spec"]["versions"]:
        if version["name"] == info.version:
            scale = (version.get("subresources") or {}).get("scale") or {}
            return (
                _split(scale.get("specReplicasPath", "")),
                _split(scale.get("statusReplicasPath", "")),
                _split(scale.get("labelSelectorPath", "")),
            )
    return [], [], []


def _split(path: str) -> list[str]:
    return [step for step in path.split(".") if step]


def scale_of(info: ResourceInfo, obj: Object, *, to_write: bool = False) -> Object:
    """Return the Scale of an object. A custom resource must have replicas, except to write them."""
    desired, observed, selector = _paths(info)
    meta = obj["metadata"]
    shown = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    spec = {}
    replicas = _find(obj, desired)
    if info.is_custom and replicas is None and not to_write:
        path = "." + ".".join(desired)
        raise errors.internal(f"the spec replicas field {go_format.quote(path)} does not exist")
    if replicas:
        spec["replicas"] = replicas
    status: Object = {"replicas": _find(obj, observed) or 0}
    text = _selector_text(_find(obj, selector))
    if text:
        status["selector"] = text
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {field: meta[field] for field in shown if field in meta},
        "spec": spec,
        "status": status,
    }


def has_replicas(info: ResourceInfo, obj: Object) -> bool:
    """Return whether an object sets its number of replicas."""
    return _find(obj, _paths(info)[0]) is not None


def with_replicas(info: ResourceInfo, obj: Object, scale: Object) -> Object:
    """Return the object with the replicas of a Scale. Raises StatusError 422 for a negative number."""
    desired, _, _ = _paths(info)
    meta = scale.get("metadata") or {}
    replicas = (scale.get("spec") or {}).get("replicas") or 0
    if replicas < 0:
        problem = field_errors.invalid("spec.replicas", replicas, "must be greater than or equal to 0")
        raise errors.invalid(_Scale(), meta.get("name", ""), [problem])
    target = obj
    for step in desired[:-1]:
        target = target.setdefault(step, {})
    target[desired[-1]] = replicas
    for field in ("resourceVersion", "uid"):
        if meta.get(field):
            obj["metadata"][field] = meta[field]
    if not meta.get("resourceVersion"):
        obj["metadata"].pop("resourceVersion", None)
    return obj


class _Scale:
    group = "autoscaling"
    resource = "scales"
    kind = "Scale"


def _find(obj: Any, path: list[str]) -> Any:
    for step in path:
        if not isinstance(obj, dict):
            return None
        obj = obj.get(step)
    return obj if path else None


def _selector_text(selector: Any) -> str:
    if not isinstance(selector, dict):
        return selector if isinstance(selector, str) else ""
    if "matchLabels" not in selector and "matchExpressions" not in selector:
        return ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
    terms = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    terms += [(each["key"], _expression_text(each)) for each in selector.get("matchExpressions") or ()]
    return ",".join(text for _, text in sorted(terms))


def _expression_text(expression: Object) -> str:
    key, operator = expression["key"], expression["operator"]
    values = ",".join(sorted(expression.get("values") or ()))
    if operator == "In":
        return f"{key} in ({values})"
    if operator == "NotIn":
        return f"{key} notin ({values})"
    return key if operator == "Exists" else f"!{key}"
