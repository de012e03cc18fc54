"""CRDs and schemas for the tests, in a few words."""

from __future__ import annotations

from typing import Any

from kapsa.fleet.domain.crds import (
    ChangeSeverity,
    CrdComparison,
    CrdFinding,
    compare_crds,
    compare_schemas,
    parse_crd,
    parse_schema,
    worst,
)

Raw = dict[str, Any]
BREAKING, WARNING, SAFE = ChangeSeverity.BREAKING, ChangeSeverity.WARNING, ChangeSeverity.SAFE


def resource(spec: Raw | None = None, **properties: Raw) -> Raw:
    """Return the schema of a resource with this `spec`, and further fields next to it."""
    fields = {} if spec is None else {"spec": spec}
    return {"type": "object", "properties": {**fields, **properties}}


def object_of(properties: Raw, **more: Any) -> Raw:
    """Return the schema of an object with these properties."""
    return {"type": "object", "properties": properties, **more}


def field_of(field: Raw | None, **more: Any) -> Raw:
    """Return the schema of a resource whose only field is `spec.field`; None leaves it out."""
    return resource(object_of({} if field is None else {"field": field}, **more))


def compare(old: Raw, new: Raw) -> list[CrdFinding]:
    """Return the findings between two schemas of resources."""
    return compare_schemas(parse_schema(old), parse_schema(new))


def severity(old: Raw, new: Raw) -> ChangeSeverity:
    """Return the worst severity between two schemas of resources."""
    return worst(compare(old, new))


def rules(findings: Any) -> list[str]:
    """Return severity, rule and path of each finding that is not safe."""
    return [finding.headline for finding in findings if finding.severity is not SAFE]


def version(name: str = "v1", schema: Raw | None = None, **more: Any) -> Raw:
    """Return a version of a CRD, served and stored unless it says otherwise."""
    root = resource(object_of({"size": {"type": "integer"}})) if schema is None else schema
    return {"name": name, "served": True, "storage": True, "schema": {"openAPIV3Schema": root}, **more}


def crd(*versions: Raw, stored: list[str] | None = None, names: Raw | None = None, **spec: Any) -> Raw:
    """Return a CRD with these versions."""
    document: Raw = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {
                "plural": "widgets",
                "kind": "Widget",
                "singular": "widget",
                "listKind": "WidgetList",
                **(names or {}),
            },
            "versions": list(versions) or [version()],
            **spec,
        },
    }
    return document if stored is None else {**document, "status": {"storedVersions": stored}}


def comparison(old: Raw, new: Raw) -> CrdComparison:
    """Return the comparison of two CRDs."""
    return compare_crds(parse_crd(old), parse_crd(new))
