"""The schema node that validation, pruning, defaulting and merging all walk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec


class ValidationRule(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """An entry of `x-kubernetes-validations`: a CEL expression over `self`."""

    rule: str
    message: str = ""
    message_expression: str = ""
    reason: str = ""
    field_path: str = ""
    optional_old_self: bool = False


class Schema(msgspec.Struct, frozen=True, kw_only=True, eq=False, weakref=True):
    """The schema of one value. Recursive kinds are cycles through `properties`, never copies."""

    type: str = ""
    """object, array, string, integer, number or boolean; "" for any type and for int-or-string."""
    properties: dict[str, Schema] = {}
    additional: Schema | None = None
    """Schema of the values of a map (`additionalProperties`)."""
    items: Schema | None = None
    list_type: str = ""
    """atomic, set or map; "" means atomic."""
    map_keys: tuple[str, ...] = ()
    map_type: str = "granular"
    preserve_unknown: bool = False
    embedded_resource: bool = False
    int_or_string: bool = False
    nullable: bool = False
    default: Any = msgspec.UNSET
    patch_strategy: str = ""
    """Comma-joined: merge, replace, retainKeys. Built-in kinds only."""
    patch_merge_key: str = ""
    name: str = ""
    """Name of a built-in definition, such as io.k8s.api.apps.v1.DeploymentSpec."""

    format: str = ""
    pattern: str = ""
    enum: tuple[Any, ...] | None = None
    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: bool = False
    exclusive_maximum: bool = False
    multiple_of: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    unique_items: bool = False
    min_properties: int | None = None
    max_properties: int | None = None
    required: tuple[str, ...] = ()
    all_of: tuple[Schema, ...] = ()
    any_of: tuple[Schema, ...] = ()
    one_of: tuple[Schema, ...] = ()
    not_: Schema | None = None
    rules: tuple[ValidationRule, ...] = ()
    free_text: bool = False
    """Computed: any string is valid. Most values of most objects are such, so validation looks here first."""

    def __post_init__(self) -> None:
        limits = (
            self.format,
            self.pattern,
            self.enum is not None,
            self.min_length is not None,
            self.max_length is not None,
            self.all_of,
            self.any_of,
            self.one_of,
            self.not_,
        )
        msgspec.structs.force_setattr(self, "free_text", self.type == "string" and not any(limits))

    @classmethod
    def from_crd(cls, open_api_v3_schema: Mapping[str, Any] | None) -> Schema:
        """Return the schema of a custom resource: the CRD's own, completed with type and object metadata."""
        if not open_api_v3_schema:
            return cls(preserve_unknown=True, type="object", properties=dict(TYPE_AND_OBJECT_META))
        return _complete_resource(_parse(open_api_v3_schema))

    @classmethod
    def from_node(cls, raw: Mapping[str, Any]) -> Schema:
        """Return the schema of one field, as written in a CRD."""
        return _parse(raw)

    @property
    def is_map(self) -> bool:
        """True if this is an object with free keys, not a struct with named fields."""
        return self.additional is not None

    def child(self, name: str) -> Schema | None:
        """Return the schema of the value under `name`, None if the field is not specified."""
        return self.properties.get(name, self.additional)


def walk(schema: Schema) -> Iterator[Schema]:
    """Yield every node reachable from `schema`, each once, cycles included."""
    seen: set[int] = set()
    pending = [schema]
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        pending.extend(node.properties.values())
        pending.extend(child for child in (node.items, node.additional) if child is not None)


def _object_meta() -> Schema:
    text = Schema(type="string")
    time = Schema(type="string", format="date-time")
    text_map = Schema(type="object", additional=text)
    owner = Schema(
        type="object",
        map_type="atomic",
        properties={
            "apiVersion": text,
            "blockOwnerDeletion": Schema(type="boolean"),
            "controller": Schema(type="boolean"),
            "kind": text,
            "name": text,
            "uid": text,
        },
    )
    managed = Schema(
        type="object",
        name="io.k8s.apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry",
        properties={
            "apiVersion": text,
            "fieldsType": text,
            "fieldsV1": Schema(type="object", preserve_unknown=True),
            "manager": text,
            "operation": text,
            "subresource": text,
            "time": time,
        },
    )
    return Schema(
        type="object",
        properties={
            "annotations": text_map,
            "creationTimestamp": Schema(type="string", format="date-time", nullable=True),
            "deletionGracePeriodSeconds": Schema(type="integer", format="int64"),
            "deletionTimestamp": time,
            "finalizers": Schema(type="array", items=text, list_type="set", patch_strategy="merge"),
            "generateName": text,
            "generation": Schema(type="integer", format="int64"),
            "labels": text_map,
            "managedFields": Schema(type="array", items=managed, list_type="atomic"),
            "name": text,
            "namespace": text,
            "ownerReferences": Schema(
                type="array",
                items=owner,
                list_type="map",
                map_keys=("uid",),
                patch_strategy="merge",
                patch_merge_key="uid",
            ),
            "resourceVersion": text,
            "selfLink": text,
            "uid": text,
        },
    )


OBJECT_META = _object_meta()
"""metav1.ObjectMeta as kube-apiserver's OpenAPI document describes it."""
RAW_EXTENSION = "io.k8s.apimachinery.pkg.runtime.RawExtension"
"""A definition that stands for any JSON value, although its type is object."""
TYPE_AND_OBJECT_META: Mapping[str, Schema] = {
    "apiVersion": Schema(type="string"),
    "kind": Schema(type="string"),
    "metadata": OBJECT_META,
}

_FACETS = {
    "format": "format",
    "pattern": "pattern",
    "minimum": "minimum",
    "maximum": "maximum",
    "exclusiveMinimum": "exclusive_minimum",
    "exclusiveMaximum": "exclusive_maximum",
    "multipleOf": "multiple_of",
    "minLength": "min_length",
    "maxLength": "max_length",
    "minItems": "min_items",
    "maxItems": "max_items",
    "uniqueItems": "unique_items",
    "minProperties": "min_properties",
    "maxProperties": "max_properties",
    "nullable": "nullable",
    "type": "type",
    "x-kubernetes-list-type": "list_type",
    "x-kubernetes-map-type": "map_type",
    "x-kubernetes-preserve-unknown-fields": "preserve_unknown",
    "x-kubernetes-embedded-resource": "embedded_resource",
    "x-kubernetes-int-or-string": "int_or_string",
    "x-kubernetes-patch-strategy": "patch_strategy",
    "x-kubernetes-patch-merge-key": "patch_merge_key",
}


def _parse(raw: Mapping[str, Any]) -> Schema:
    fields: dict[str, Any] = {
        name: raw[key] for key, name in _FACETS.items() if key in raw and raw[key] is not None
    }
    if raw.get("properties"):
        fields["properties"] = {name: _parse(child) for name, child in raw["properties"].items()}
    if raw.get("items"):
        fields["items"] = _parse(raw["items"])
    additional = raw.get("additionalProperties")
    if isinstance(additional, Mapping):
        fields["additional"] = _parse(additional)
    elif additional is True:
        fields["additional"] = Schema()
    if raw.get("required"):
        fields["required"] = tuple(raw["required"])
    if raw.get("enum") is not None:
        fields["enum"] = tuple(raw["enum"])
    if raw.get("default") is not None:
        fields["default"] = raw["default"]
    if raw.get("x-kubernetes-list-map-keys"):
        fields["map_keys"] = tuple(raw["x-kubernetes-list-map-keys"])
    for key, name in (("allOf", "all_of"), ("anyOf", "any_of"), ("oneOf", "one_of")):
        if raw.get(key):
            fields[name] = tuple(_parse(branch) for branch in raw[key])
    if raw.get("not") is not None:
        fields["not_"] = _parse(raw["not"])
    if raw.get("x-kubernetes-validations"):
        fields["rules"] = tuple(_parse_rule(rule) for rule in raw["x-kubernetes-validations"])
    schema = Schema(**fields)
    return _complete_resource(schema) if schema.embedded_resource else schema


def _parse_rule(raw: Mapping[str, Any]) -> ValidationRule:
    return ValidationRule(
        rule=raw.get("rule", ""),
        message=raw.get("message", ""),
        message_expression=raw.get("messageExpression", ""),
        reason=raw.get("reason") or "",
        field_path=raw.get("fieldPath", ""),
        optional_old_self=bool(raw.get("optionalOldSelf")),
    )


def _complete_resource(schema: Schema) -> Schema:
    """Add apiVersion, kind and metadata; a CRD may restrict only metadata's name and generateName."""
    declared = schema.properties.get("metadata")
    metadata = OBJECT_META
    if declared is not None and declared.properties:
        metadata = msgspec.structs.replace(
            OBJECT_META, properties={**OBJECT_META.properties, **declared.properties}
        )
    if declared is not None and declared.rules:
        metadata = msgspec.structs.replace(metadata, rules=declared.rules)
    properties = {**TYPE_AND_OBJECT_META, **schema.properties, "metadata": metadata}
    return msgspec.structs.replace(schema, properties=properties)
