"""The comparison of two schemas: a walk over the nodes that differ.

Equal subtrees are skipped by one comparison in C, so the cost follows the size of the difference. A stored object
went through the old schema: fields that it does not specify are gone, and its defaults are filled in. A change is
safe if each such object passes through the new schema unchanged, and is accepted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from kapsa.fleet.domain.crds.branches import branch_changes
from kapsa.fleet.domain.crds.cel_rules import rule_changes
from kapsa.fleet.domain.crds.changes import NodeChange, breaking, is_scalar, safe, warning
from kapsa.fleet.domain.crds.definitions import SchemaNode
from kapsa.fleet.domain.crds.facets import default_changes, facet_changes, type_changes
from kapsa.fleet.domain.crds.findings import ChangeRule, ChangeSeverity, CrdFinding
from kapsa.fleet.domain.crds.list_types import list_type_changes
from kapsa.fleet.domain.errors import InvalidInput

__all__ = ["compare_schemas"]

_TEXT = SchemaNode(type="string")
_METADATA = SchemaNode(type="object", properties={"name": _TEXT, "generateName": _TEXT})
_RESOURCE_FIELDS = {"apiVersion": _TEXT, "kind": _TEXT, "metadata": _METADATA}
_OWN_FIELDS = SchemaNode.__struct_fields__.index("items")
"""The number of fields that describe a node itself; those that follow hold its parts."""
_NO_FIELDS: Mapping[str, SchemaNode] = {}
_ANY_SCALAR = SchemaNode()
"""`additionalProperties: true`: any value, although fields of objects below it are pruned."""


def compare_schemas(old: SchemaNode, new: SchemaNode, version: str = "") -> list[CrdFinding]:
    """Return the differences between two schemas of one custom resource, in the order of their paths.

    Raises `InvalidInput` if they are nested too deeply to be compared.
    """
    walk = _Walk(version)
    try:
        if old != new:
            walk.visit(old, new, _Spot("", resource=True))
    except RecursionError:
        raise InvalidInput("the schemas are nested too deeply to be compared: flatten them") from None
    return sorted(walk.findings, key=lambda finding: (finding.path, finding.rule))


class _Spot(msgspec.Struct, frozen=True, gc=False):
    """The place of a node: its path, and what is true of all values there."""

    path: str
    below_status: bool = False
    correlated: bool = True
    """False inside a list whose entries an update cannot match to the old ones: ratcheting ends there."""
    required: bool = False
    """True if the new schema requires the field."""
    resource: bool = False
    """True for the root, which has apiVersion, kind and metadata in any case."""

    def field(self, name: str, *, required: bool) -> _Spot:
        """Return the place of a field."""
        path = f"{self.path}.{name}" if self.path else name
        below_status = self.below_status or (self.resource and name == "status")
        return _Spot(path, below_status, self.correlated, required)

    def entry(self, suffix: str, *, correlated: bool = True) -> _Spot:
        """Return the place of the entries of a list (`[*]`) or of the values of a map (`.*`)."""
        return _Spot(self.path + suffix, self.below_status, self.correlated and correlated)


class _Walk:
    """A walk over two schemas that collects findings."""

    def __init__(self, version: str) -> None:
        self._version = version
        self.findings: list[CrdFinding] = []

    def visit(self, old: SchemaNode, new: SchemaNode, spot: _Spot) -> None:
        """Compare two nodes that differ."""
        before, after = msgspec.structs.astuple(old), msgspec.structs.astuple(new)
        if before[:_OWN_FIELDS] != after[:_OWN_FIELDS] or type(old.default) is not type(new.default):
            self._record(default_changes(old.default, new.default, required=spot.required), old, spot)
            change = type_changes(old, new)
            self._record(change, old, spot)
            if change is not None and change.severity is ChangeSeverity.BREAKING:
                return  # nothing below can make it better or worse
            for change in _own_changes(old, new):
                self._record(change, old, spot)
            if old.required != new.required:
                self._visit_required(old, new, spot)
        self._visit_properties(old, new, spot)
        if old.additional is not None or new.additional is not None:
            self._visit_map(old, new, spot)
        if old.items is not new.items and old.items != new.items:
            entries = spot.entry("[*]", correlated=new.list_type == "map")
            self.visit(old.items or _ANY_SCALAR, new.items or _ANY_SCALAR, entries)

    def _record(self, change: NodeChange | None, node: SchemaNode, spot: _Spot) -> None:
        if change is None:
            return
        severity = change.severity
        if spot.below_status and severity is ChangeSeverity.BREAKING:
            severity = ChangeSeverity.WARNING  # a controller writes status again from what it observes
        ratchets = change.validates and spot.correlated and not spot.resource and is_scalar(node)
        loses_data = change.loses_data and not spot.below_status
        self.findings.append(
            CrdFinding(change.rule, spot.path, severity, change.reason, self._version, ratchets, loses_data)
        )

    def _visit_required(self, old: SchemaNode, new: SchemaNode, spot: _Spot) -> None:
        before, after = set(old.required or ()), set(new.required or ())
        present = _RESOURCE_FIELDS if spot.resource else _NO_FIELDS
        fields = new.properties or _NO_FIELDS
        for name in sorted(after - before):
            field = fields.get(name)
            if name in present:
                continue
            if field is not None and field.default is not None:
                text = "required now, and its default is filled in wherever it is missing"
                change = safe(ChangeRule.REQUIRED_ADDED, text)
            else:
                text = "required now, without a default: objects that lack it are rejected"
                change = breaking(ChangeRule.REQUIRED_ADDED, text)
            self._record(change, old, spot.field(name, required=True))
        for name in sorted(before - after - present.keys()):
            if name in fields or new.preserve or new.additional:
                change = safe(ChangeRule.REQUIRED_REMOVED, "optional now")
                self._record(change, old, spot.field(name, required=False))

    def _visit_properties(self, old: SchemaNode, new: SchemaNode, spot: _Spot) -> None:
        before, after = _fields(old, new, spot), _fields(new, old, spot)
        if before is after:
            return
        required = new.required or ()
        for name, field in before.items():
            present = after.get(name)
            if present is None:
                self._visit_removed(field, new, spot.field(name, required=name in required))
            elif field is not present and field != present:
                self.visit(field, present, spot.field(name, required=name in required))
        for name in after.keys() - before.keys():
            self._visit_added(after[name], old, spot.field(name, required=name in required))

    def _visit_added(self, field: SchemaNode, parent: SchemaNode, spot: _Spot) -> None:
        values = _values(parent)
        if values is None:
            self._record(_added(field, parent), parent, spot)
        elif field != values:
            self.visit(values, field, spot)

    def _visit_removed(self, field: SchemaNode, parent: SchemaNode, spot: _Spot) -> None:
        values = _values(parent)
        if values is not None:
            if field != values:
                self.visit(field, values, spot)
        elif parent.preserve:
            self._record(safe(ChangeRule.FIELD_UNSPECIFIED, "kept, and no longer checked"), field, spot)
            self._record(default_changes(field.default, None, required=spot.required), field, spot)
        else:
            text = "not specified any more: its data is pruned from every object that is written"
            self._record(breaking(ChangeRule.FIELD_REMOVED, text, loses_data=True), field, spot)

    def _visit_map(self, old: SchemaNode, new: SchemaNode, spot: _Spot) -> None:
        before, after = _values(old), _values(new)
        if before is not None and after is not None:
            if before is not after and before != after:
                self.visit(before, after, spot.entry(".*"))
        elif before is not None:
            self._record(_closed(new), old, spot.entry(".*"))
        elif after is not None:
            change = (
                _specified(after) if old.preserve else safe(ChangeRule.MAP_OPENED, "any key is accepted now")
            )
            self._record(change, old, spot.entry(".*"))


def _own_changes(old: SchemaNode, new: SchemaNode) -> Iterator[NodeChange]:
    """Yield the changes of a node apart from its type, its default and its parts."""
    yield from facet_changes(old, new)
    yield from list_type_changes(old, new)
    yield from branch_changes(old, new)
    if old.rules != new.rules:
        yield from rule_changes(old.rules, new.rules)
    yield from _preservation(old, new)
    yield from _embedding(old, new)


def _fields(node: SchemaNode, other: SchemaNode, spot: _Spot) -> Mapping[str, SchemaNode]:
    """Return the fields that a node specifies; a resource has type and metadata in any case."""
    declared = node.properties or _NO_FIELDS
    if not (spot.resource or (node.embedded and other.embedded)):
        return declared
    metadata = declared.get("metadata")
    fields = {**_RESOURCE_FIELDS, **declared, "metadata": _METADATA}
    if metadata is not None and (metadata.properties or metadata.rules):
        named = {**(_METADATA.properties or {}), **(metadata.properties or {})}
        fields["metadata"] = msgspec.structs.replace(_METADATA, properties=named, rules=metadata.rules)
    return fields


def _values(node: SchemaNode) -> SchemaNode | None:
    """Return the schema of the values of a map, None if the node is not a map."""
    if node.additional is True:
        return _ANY_SCALAR
    return node.additional if isinstance(node.additional, SchemaNode) else None


def _preservation(old: SchemaNode, new: SchemaNode) -> Iterator[NodeChange]:
    if old.preserve and not new.preserve:
        text = "unknown fields are not preserved any more: their data is pruned from every object that is written"
        yield breaking(ChangeRule.UNKNOWN_FIELDS_PRUNED, text, loses_data=True)
    elif new.preserve and not old.preserve:
        yield safe(ChangeRule.UNKNOWN_FIELDS_PRESERVED, "unknown fields are preserved now")


def _embedding(old: SchemaNode, new: SchemaNode) -> Iterator[NodeChange]:
    if new.embedded and not old.embedded:
        text = "an object here must be a resource with apiVersion and kind now"
        yield breaking(ChangeRule.EMBEDDED_RESOURCE_CHANGED, text)
    elif old.embedded and not new.embedded:
        if new.preserve:
            text = "an object here need not be a resource any more"
            yield safe(ChangeRule.EMBEDDED_RESOURCE_CHANGED, text)
        else:
            text = "an object here is not a resource any more: its type and metadata are pruned"
            yield breaking(ChangeRule.EMBEDDED_RESOURCE_CHANGED, text, loses_data=True)


def _added(field: SchemaNode, parent: SchemaNode) -> NodeChange:
    """Return the change that a new field makes below `parent`, the old schema of its object."""
    if parent.preserve:
        return _specified(field)
    if field.default is not None:
        change = default_changes(None, field.default, required=False)
        assert change is not None
        return change
    return safe(ChangeRule.FIELD_ADDED, "a new field, which no stored object has")


def _specified(field: SchemaNode) -> NodeChange:
    """Return the change that a schema makes where any data was preserved so far."""
    open_field = msgspec.structs.replace(field, default=None, nullable=None) == SchemaNode(preserve=True)
    if open_field:
        return warning(ChangeRule.FIELD_SPECIFIED, "specified now, and accepts any value but null")
    text = "specified now: data of any shape was preserved here, and what does not fit is rejected or pruned"
    return breaking(ChangeRule.FIELD_SPECIFIED, text, loses_data=True)


def _closed(new: SchemaNode) -> NodeChange:
    if new.preserve:
        return safe(ChangeRule.MAP_OPENED, "values of any shape are preserved now")
    text = "keys are not free any more: those that the schema does not name are pruned"
    return breaking(ChangeRule.MAP_CLOSED, text, loses_data=True)
