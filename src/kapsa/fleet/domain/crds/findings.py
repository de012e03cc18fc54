"""Findings: one difference between two CRDs each, with its severity, its reason and what to do about it."""

import enum
from collections.abc import Iterable

import msgspec

__all__ = ["ChangeRule", "ChangeSeverity", "CrdFinding", "worst"]


class ChangeSeverity(enum.StrEnum):
    """The effect that a change may have on objects that exist."""

    BREAKING = "breaking"
    """Objects or requests that were accepted may be rejected, or data may be lost."""
    WARNING = "warning"
    """Nothing stored is rejected, but somebody may notice."""
    SAFE = "safe"
    """Everything that was accepted still is, and keeps its meaning."""

    @property
    def rank(self) -> int:
        """The order of severity: 0 is the worst."""
        return _RANKS[self]


_RANKS = {ChangeSeverity.BREAKING: 0, ChangeSeverity.WARNING: 1, ChangeSeverity.SAFE: 2}


class ChangeRule(enum.StrEnum):
    """The kinds of change. The names are stable: approvals, metrics and guides refer to them."""

    REQUIRED_ADDED = "required-added"
    REQUIRED_REMOVED = "required-removed"
    FIELD_ADDED = "field-added"
    FIELD_REMOVED = "field-removed"
    FIELD_SPECIFIED = "field-specified"
    FIELD_UNSPECIFIED = "field-unspecified"
    UNKNOWN_FIELDS_PRUNED = "unknown-fields-pruned"
    UNKNOWN_FIELDS_PRESERVED = "unknown-fields-preserved"
    MAP_CLOSED = "map-closed"
    MAP_OPENED = "map-opened"
    TYPE_CHANGED = "type-changed"
    TYPE_WIDENED = "type-widened"
    ENUM_ADDED = "enum-added"
    ENUM_REMOVED = "enum-removed"
    ENUM_VALUE_ADDED = "enum-value-added"
    ENUM_VALUE_REMOVED = "enum-value-removed"
    BOUND_TIGHTENED = "bound-tightened"
    BOUND_RELAXED = "bound-relaxed"
    PATTERN_CHANGED = "pattern-changed"
    PATTERN_REMOVED = "pattern-removed"
    FORMAT_CHANGED = "format-changed"
    FORMAT_REMOVED = "format-removed"
    NULL_FORBIDDEN = "null-forbidden"
    NULL_ALLOWED = "null-allowed"
    DEFAULT_ADDED = "default-added"
    DEFAULT_CHANGED = "default-changed"
    DEFAULT_REMOVED = "default-removed"
    BRANCHES_NARROWED = "branches-narrowed"
    BRANCHES_RELAXED = "branches-relaxed"
    CEL_RULE_ADDED = "cel-rule-added"
    CEL_RULE_CHANGED = "cel-rule-changed"
    CEL_RULE_REMOVED = "cel-rule-removed"
    LIST_TYPE_CHANGED = "list-type-changed"
    MAP_KEYS_CHANGED = "map-keys-changed"
    MAP_TYPE_CHANGED = "map-type-changed"
    EMBEDDED_RESOURCE_CHANGED = "embedded-resource-changed"
    IDENTITY_CHANGED = "identity-changed"
    NAMES_CHANGED = "names-changed"
    VERSION_ADDED = "version-added"
    VERSION_REMOVED = "version-removed"
    STORED_VERSION_REMOVED = "stored-version-removed"
    VERSION_UNSERVED = "version-unserved"
    VERSION_SERVED = "version-served"
    VERSION_DEPRECATED = "version-deprecated"
    VERSION_LOSSY = "version-lossy"
    STORAGE_MOVED = "storage-moved"
    CONVERSION_CHANGED = "conversion-changed"
    SUBRESOURCE_REMOVED = "subresource-removed"
    SUBRESOURCE_ADDED = "subresource-added"
    SUBRESOURCE_CHANGED = "subresource-changed"
    SELECTABLE_FIELD_REMOVED = "selectable-field-removed"
    SELECTABLE_FIELD_ADDED = "selectable-field-added"
    DISPLAY_CHANGED = "display-changed"


_REMEDIES = {
    ChangeRule.REQUIRED_ADDED: "give the field a default, or set it in every object before the upgrade",
    ChangeRule.FIELD_REMOVED: "move its data to another field first, or keep the field in the schema as deprecated",
    ChangeRule.FIELD_SPECIFIED: "check that every object has this shape under the field before the upgrade",
    ChangeRule.UNKNOWN_FIELDS_PRUNED: "specify every field that objects use, or keep x-kubernetes-preserve-unknown-fields",
    ChangeRule.MAP_CLOSED: "list every key that objects use as a property, or keep additionalProperties",
    ChangeRule.TYPE_CHANGED: "add a field with the new type, or a new version with a conversion webhook",
    ChangeRule.TYPE_WIDENED: "check that every client that reads the field can read the new type",
    ChangeRule.ENUM_ADDED: "correct the objects with another value before the upgrade",
    ChangeRule.ENUM_VALUE_ADDED: "check that every client that reads the field accepts the new value",
    ChangeRule.ENUM_VALUE_REMOVED: "replace the value in every object before the upgrade",
    ChangeRule.BOUND_TIGHTENED: "correct the objects beyond the bound before the upgrade",
    ChangeRule.PATTERN_CHANGED: "correct the objects that do not match before the upgrade",
    ChangeRule.FORMAT_CHANGED: "correct the objects that do not have the format before the upgrade",
    ChangeRule.NULL_FORBIDDEN: "remove the nulls, or replace them with a value, before the upgrade",
    ChangeRule.DEFAULT_ADDED: "set the field where the default does not fit before the upgrade",
    ChangeRule.DEFAULT_CHANGED: "set the field where the new default does not fit before the upgrade",
    ChangeRule.DEFAULT_REMOVED: "set the field in every object before the upgrade",
    ChangeRule.BRANCHES_NARROWED: "correct the objects that match no branch any more before the upgrade",
    ChangeRule.CEL_RULE_ADDED: "correct the objects that break the rule before the upgrade",
    ChangeRule.CEL_RULE_CHANGED: "correct the objects that break the new rule before the upgrade",
    ChangeRule.LIST_TYPE_CHANGED: "let one field manager own the list, without duplicates, before the upgrade",
    ChangeRule.MAP_KEYS_CHANGED: "let one field manager own the list, unique by the new keys, before the upgrade",
    ChangeRule.MAP_TYPE_CHANGED: "let one field manager own the map before the upgrade",
    ChangeRule.EMBEDDED_RESOURCE_CHANGED: "give every embedded object an apiVersion and a kind before the upgrade",
    ChangeRule.IDENTITY_CHANGED: "publish a second CRD and move the objects to it; this one cannot be changed into it",
    ChangeRule.NAMES_CHANGED: "announce it to the people who use the old name",
    ChangeRule.VERSION_REMOVED: "move every client to another version before the upgrade",
    ChangeRule.STORED_VERSION_REMOVED: "migrate the stored objects, and drop the version from status.storedVersions, first",
    ChangeRule.VERSION_UNSERVED: "move every client to another version before the upgrade",
    ChangeRule.VERSION_DEPRECATED: "move clients to another version",
    ChangeRule.VERSION_LOSSY: "convert with a webhook, or add the fields to the version",
    ChangeRule.STORAGE_MOVED: "migrate the stored objects after the upgrade",
    ChangeRule.CONVERSION_CHANGED: "check a round trip through every version after the upgrade",
    ChangeRule.SUBRESOURCE_REMOVED: "keep the subresource, or move its clients first",
    ChangeRule.SUBRESOURCE_ADDED: "check that the controller writes status through /status",
    ChangeRule.SUBRESOURCE_CHANGED: "check autoscalers that use the scale subresource",
    ChangeRule.SELECTABLE_FIELD_REMOVED: "move clients to a label selector before the upgrade",
}


class CrdFinding(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """One difference between two CRDs."""

    rule: ChangeRule
    path: str
    """The field, such as `spec.template.containers[*].image`, or the part of the CRD, such as `spec.scope`."""
    severity: ChangeSeverity
    reason: str
    version: str = ""
    """The version whose schema changed; empty for the CRD as a whole."""
    ratchets: bool = False
    """True if a cluster with validation ratcheting accepts updates that leave the offending value unchanged."""
    loses_data: bool = False
    """True if stored data may be lost: the step cannot be undone."""
    blocked: bool = False
    """True if the API server refuses the new CRD until something else is done."""

    remedy: str = ""
    """One sentence: what to do about it. Empty if nothing needs to be done."""

    def __post_init__(self) -> None:
        if not self.remedy and self.severity is not ChangeSeverity.SAFE:
            msgspec.structs.force_setattr(self, "remedy", _REMEDIES.get(self.rule, ""))

    @property
    def headline(self) -> str:
        """The line that a plan's digest covers: severity, rule and path."""
        where = f"{self.version}:{self.path}" if self.version else self.path
        return f"{self.severity} {self.rule} {where}"


def worst(findings: Iterable[CrdFinding]) -> ChangeSeverity:
    """Return the worst severity; safe if there is no finding."""
    return min(
        (finding.severity for finding in findings), key=lambda item: item.rank, default=ChangeSeverity.SAFE
    )
