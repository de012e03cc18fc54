"""The custom kinds of the cases: a namespaced one with most features of a schema, a cluster-scoped one."""

from __future__ import annotations

from typing import Any

STRING: dict[str, Any] = {"type": "string"}
INTEGER: dict[str, Any] = {"type": "integer"}

SPEC: dict[str, Any] = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 10},
        "color": {"type": "string", "enum": ["red", "green"], "default": "red"},
        "name": {"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 8},
        "ratio": {"type": "number", "multipleOf": 0.5},
        "strict": {
            "type": "number",
            "minimum": 0,
            "exclusiveMinimum": True,
            "maximum": 100,
            "exclusiveMaximum": True,
        },
        "enabled": {"type": "boolean", "default": False},
        "maybe": {"type": "string", "nullable": True, "default": "some"},
        "port": {"x-kubernetes-int-or-string": True},
        "when": {"type": "string", "format": "date-time"},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "labels": {"type": "object", "additionalProperties": STRING, "maxProperties": 3},
        "counts": {"type": "object", "additionalProperties": INTEGER},
        "tags": {"type": "array", "items": STRING, "x-kubernetes-list-type": "set"},
        "list": {"type": "array", "items": STRING, "minItems": 1, "maxItems": 3},
        "parts": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": STRING, "count": {"type": "integer", "default": 1}, "note": STRING},
            },
        },
        "nested": {
            "type": "object",
            "default": {},
            "properties": {"depth": {"type": "integer", "default": 3}, "label": STRING},
        },
        "atom": {
            "type": "object",
            "x-kubernetes-map-type": "atomic",
            "properties": {"a": STRING, "b": STRING},
        },
        "either": {
            "type": "object",
            "properties": {"a": STRING, "b": STRING},
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
        },
        "low": INTEGER,
        "high": INTEGER,
        "fixed": {
            "type": "string",
            "maxLength": 20,
            "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed is immutable"}],
        },
    },
    "x-kubernetes-validations": [
        {
            "rule": "!has(self.low) || !has(self.high) || self.low <= self.high",
            "message": "low must not be above high",
        }
    ],
}
STATUS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "ready": {"type": "boolean"},
        "replicas": INTEGER,
        "selector": STRING,
        "conditions": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
            "items": {
                "type": "object",
                "required": ["type", "status"],
                "properties": {"type": STRING, "status": STRING, "reason": STRING},
            },
        },
    },
}


def definition(
    plural: str, kind: str, *, scope: str = "Namespaced", group: str = "conformance.kapsa.dev", **version: Any
) -> dict[str, Any]:
    """Return a CustomResourceDefinition with one version, `v1`, whose fields are `version`."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema, **version}],
        },
    }


WIDGET = definition(
    "widgets",
    "Widget",
    schema={"openAPIV3Schema": {"type": "object", "properties": {"spec": SPEC, "status": STATUS}}},
    subresources={
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.size",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    },
    additionalPrinterColumns=[
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "description": "How large it is."},
        {"name": "Color", "type": "string", "jsonPath": ".spec.color", "priority": 1},
        {"name": "Ready", "type": "boolean", "jsonPath": ".status.ready"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ],
    selectableFields=[{"jsonPath": ".spec.color"}],
)
GADGET = definition("gadgets", "Gadget", scope="Cluster")
DEFINITIONS = (WIDGET, GADGET)
