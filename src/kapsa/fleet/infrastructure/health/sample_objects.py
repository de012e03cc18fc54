"""Objects for dry-run writes: the smallest that a schema accepts, by a guess, or a copy of a real one."""

import copy
from collections.abc import Mapping
from typing import Any

from kapsa.fleet.infrastructure.health.resource_reader import CrdContent, CrdVersion

__all__ = ["copied_object", "core_object", "minimal_object", "selects"]

_NAME = "kapsa-health-probe"
_DEEPEST = 12
_FORMATS = {
    "date-time": "2030-01-01T00:00:00Z",
    "date": "2030-01-01",
    "duration": "1s",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "cidr": "192.0.2.0/24",
    "uri": "https://example.com",
    "email": "probe@example.com",
    "hostname": "example.com",
    "byte": "cHJvYmU=",
}
_CONTAINERS = [{"name": "probe", "image": "registry.invalid/probe:1"}]
_CORE: Mapping[tuple[str, str], dict[str, Any]] = {
    ("", "configmaps"): {"apiVersion": "v1", "kind": "ConfigMap"},
    ("", "secrets"): {"apiVersion": "v1", "kind": "Secret"},
    ("", "pods"): {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": _CONTAINERS}},
    ("", "services"): {"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 80}]}},
    ("", "serviceaccounts"): {"apiVersion": "v1", "kind": "ServiceAccount"},
}


def core_object(group: str, resource: str, namespace: str) -> dict[str, Any] | None:
    """Return an object of a built-in kind, None for kinds that are not worth the risk."""
    body = _CORE.get((group, resource))
    return None if body is None else {**body, "metadata": {"name": _NAME, "namespace": namespace}}


def copied_object(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of an object under another name, as for a create."""
    body = copy.deepcopy(dict(manifest))
    before = body.get("metadata") or {}
    body.pop("status", None)
    kept = {key: before[key] for key in ("namespace", "labels", "annotations") if key in before}
    return {**body, "metadata": {**kept, "name": _NAME}}


def minimal_object(crd: CrdContent, version: CrdVersion, namespace: str) -> dict[str, Any]:
    """Return the smallest object that the schema of a CRD is likely to accept."""
    schema = (version.schema or {}).get("openAPIV3Schema") or {}
    body = _minimal(schema, 0) if isinstance(schema, Mapping) else {}
    body = body if isinstance(body, dict) else {}
    properties = schema.get("properties") or {}
    if "spec" in properties:
        body["spec"] = _minimal(properties["spec"], 1)
    body.pop("status", None)
    metadata = {"name": _NAME, **({"namespace": namespace} if crd.namespaced else {})}
    identity = {"apiVersion": f"{crd.spec.group}/{version.name}", "kind": crd.spec.names.kind}
    return {**body, **identity, "metadata": metadata}


def _minimal(schema: Mapping[str, Any], depth: int) -> Any:
    if "default" in schema:
        return copy.deepcopy(schema["default"])
    if schema.get("enum"):
        return schema["enum"][0]
    if depth > _DEEPEST or schema.get("x-kubernetes-int-or-string"):
        return 0
    match schema.get("type"):
        case "object":
            properties = schema.get("properties") or {}
            required = [name for name in schema.get("required") or () if name in properties]
            return {name: _minimal(properties[name], depth + 1) for name in required}
        case "array":
            items = schema.get("items") or {}
            return [_minimal(items, depth + 1) for _ in range(min(int(schema.get("minItems") or 0), 10))]
        case "string":
            return _text(schema)
        case "integer" | "number":
            return _number(schema)
        case "boolean":
            return False
    return {}


def _text(schema: Mapping[str, Any]) -> str:
    text = _FORMATS.get(str(schema.get("format", "")), "probe")
    shortest, longest = int(schema.get("minLength") or 0), int(schema.get("maxLength") or len(text))
    return text.ljust(min(shortest, 1000), "x")[: max(longest, 0)]


def _number(schema: Mapping[str, Any]) -> int | float:
    lowest = schema.get("minimum")
    if lowest is None:
        highest = schema.get("maximum")
        return min(1, int(highest)) if highest is not None else 1
    step = 1 if schema.get("exclusiveMinimum") else 0
    number = lowest + step
    return int(number) if schema.get("type") == "integer" else number


def selects(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector matches labels. An empty one matches all."""
    chosen = selector or {}
    exact = chosen.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in exact.items()):
        return False
    return all(_matches(each, labels) for each in chosen.get("matchExpressions") or ())


def _matches(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = expression.get("key", ""), expression.get("values") or ()
    match expression.get("operator"):
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    return False
