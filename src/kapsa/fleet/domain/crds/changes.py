"""A change of one schema node, before its path, its version and its cluster are taken into account."""

from typing import NamedTuple

from kapsa.fleet.domain.crds.definitions import SchemaNode
from kapsa.fleet.domain.crds.findings import ChangeRule, ChangeSeverity

__all__ = ["NodeChange", "breaking", "is_scalar", "kinds", "safe", "warning"]

_ALL_KINDS = frozenset({"object", "array", "string", "integer", "number", "boolean"})
_KINDS = {name: frozenset({name}) for name in _ALL_KINDS} | {"number": frozenset({"number", "integer"})}
_INT_OR_STRING = frozenset({"integer", "string"})


class NodeChange(NamedTuple):
    """A change of one node."""

    rule: ChangeRule
    severity: ChangeSeverity
    reason: str
    loses_data: bool = False
    validates: bool = False
    """True if validation of the node's own value is what may fail, so that ratcheting can apply to it."""


def breaking(
    rule: ChangeRule, reason: str, *, loses_data: bool = False, validates: bool = False
) -> NodeChange:
    """Return a breaking change."""
    return NodeChange(rule, ChangeSeverity.BREAKING, reason, loses_data, validates)


def warning(rule: ChangeRule, reason: str) -> NodeChange:
    """Return a change that somebody may notice."""
    return NodeChange(rule, ChangeSeverity.WARNING, reason)


def safe(rule: ChangeRule, reason: str) -> NodeChange:
    """Return a safe change."""
    return NodeChange(rule, ChangeSeverity.SAFE, reason)


def kinds(node: SchemaNode) -> frozenset[str]:
    """Return the JSON types that a value of this node may have."""
    if node.int_or_string:
        return _INT_OR_STRING
    return _KINDS.get(node.type or "", _ALL_KINDS)


def is_scalar(node: SchemaNode) -> bool:
    """Return whether the node's values have no parts that could change on their own."""
    return kinds(node).isdisjoint({"object", "array"})
