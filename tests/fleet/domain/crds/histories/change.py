"""A change that an operator made to a CRD, reduced to the part that changed, and the right verdict on it."""

from __future__ import annotations

from typing import Any, NamedTuple

from kapsa.fleet.domain.crds import ChangeSeverity
from tests.fleet.domain.crds.resources import BREAKING, SAFE, WARNING, Raw, crd, object_of, resource, version

__all__ = [
    "BOOLEAN",
    "BREAKING",
    "INTEGER",
    "SAFE",
    "STRING",
    "WARNING",
    "CrdHistory",
    "crd",
    "list_of",
    "map_of",
    "object_of",
    "rule",
    "spec",
    "version",
]

STRING = {"type": "string"}
INTEGER = {"type": "integer"}
BOOLEAN = {"type": "boolean"}


class CrdHistory(NamedTuple):
    """One change."""

    name: str
    old: Raw
    new: Raw
    findings: list[str]
    """Severity, rule and path of each finding that is not safe, in the order of the comparison."""
    back: ChangeSeverity
    """The severity of the way back."""
    one_way: bool = False


def spec(fields: Raw, **more: Any) -> Raw:
    """Return a CRD whose only version has a `spec` with these fields."""
    return crd(version("v1", resource(object_of(fields, **more))))


def list_of(items: Raw, **more: Any) -> Raw:
    """Return the schema of a list."""
    return {"type": "array", "items": items, **more}


def map_of(values: Raw, **more: Any) -> Raw:
    """Return the schema of a map."""
    return {"type": "object", "additionalProperties": values, **more}


def rule(schema: Raw, *expressions: str) -> Raw:
    """Return a schema with CEL rules."""
    return {**schema, "x-kubernetes-validations": [{"rule": expression} for expression in expressions]}
