"""CRDs as the comparison reads them: typed, without prose. Two that differ in descriptions alone are equal.

A document comes from a chart or a cluster, so its shape is checked when it is parsed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from kapsa.fleet.domain.errors import InvalidField, InvalidInput

__all__ = [
    "ConversionSpec",
    "CrdDefinition",
    "CrdVersionSpec",
    "RuleText",
    "SchemaNode",
    "SubresourceSpec",
    "parse_crd",
    "parse_schema",
]

Parsed = TypeVar("Parsed")
_Count = int | None
_Bound = int | float | None


class RuleText(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """An entry of `x-kubernetes-validations`. Its message is prose; its expression decides."""

    rule: str = ""
    message: str = ""
    optional_old_self: bool = False


class SchemaNode(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename={
        "list_type": "x-kubernetes-list-type",
        "map_keys": "x-kubernetes-list-map-keys",
        "map_type": "x-kubernetes-map-type",
        "preserve": "x-kubernetes-preserve-unknown-fields",
        "embedded": "x-kubernetes-embedded-resource",
        "int_or_string": "x-kubernetes-int-or-string",
        "rules": "x-kubernetes-validations",
        "not_": "not",
        "additional": "additionalProperties",
        "all_of": "allOf",
        "any_of": "anyOf",
        "one_of": "oneOf",
        "exclusive_minimum": "exclusiveMinimum",
        "exclusive_maximum": "exclusiveMaximum",
        "multiple_of": "multipleOf",
        "min_length": "minLength",
        "max_length": "maxLength",
        "min_items": "minItems",
        "max_items": "maxItems",
        "unique_items": "uniqueItems",
        "min_properties": "minProperties",
        "max_properties": "maxProperties",
    },
    gc=False,
):
    """The schema of one value. Small fields come first: equality stops at the first difference."""

    type: str | None = None
    format: str | None = None
    pattern: str | None = None
    nullable: bool | None = None
    minimum: _Bound = None
    maximum: _Bound = None
    exclusive_minimum: bool | None = None
    exclusive_maximum: bool | None = None
    multiple_of: _Bound = None
    min_length: _Count = None
    max_length: _Count = None
    min_items: _Count = None
    max_items: _Count = None
    unique_items: bool | None = None
    min_properties: _Count = None
    max_properties: _Count = None
    preserve: bool | None = None
    embedded: bool | None = None
    int_or_string: bool | None = None
    list_type: str | None = None
    map_type: str | None = None
    map_keys: list[str] | None = None
    required: list[str] | None = None
    enum: list[Any] | None = None
    default: Any = None
    rules: list[RuleText] | None = None
    all_of: list[SchemaNode] | None = None
    any_of: list[SchemaNode] | None = None
    one_of: list[SchemaNode] | None = None
    not_: SchemaNode | None = None
    items: SchemaNode | None = None
    additional: SchemaNode | bool | None = None
    properties: dict[str, SchemaNode] | None = None


class DisplayColumn(msgspec.Struct, frozen=True, rename="camel"):
    """A column that `kubectl get` shows."""

    name: str = ""
    type: str = ""
    json_path: str = msgspec.field(name="jsonPath", default="")
    priority: int = 0


class ScaleSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The paths of the scale subresource."""

    spec_replicas_path: str = ""
    status_replicas_path: str = ""
    label_selector_path: str | None = None


class SubresourceSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The subresources of a version."""

    status: dict[str, Any] | None = None
    scale: ScaleSpec | None = None


class SelectableField(msgspec.Struct, frozen=True):
    """A field that a field selector may name."""

    json_path: str = msgspec.field(name="jsonPath", default="")


class SchemaHolder(msgspec.Struct, frozen=True):
    """The `schema` of a version."""

    root: SchemaNode | None = msgspec.field(name="openAPIV3Schema", default=None)


class CrdVersionSpec(msgspec.Struct, frozen=True, rename="camel"):
    """One version of a CRD."""

    name: str
    served: bool = False
    storage: bool = False
    deprecated: bool = False
    deprecation_warning: str | None = None
    schema: SchemaHolder | None = None
    subresources: SubresourceSpec | None = None
    additional_printer_columns: list[DisplayColumn] | None = None
    selectable_fields: list[SelectableField] | None = None

    @property
    def root(self) -> SchemaNode:
        """The schema of the whole resource; one that permits anything if the version has none."""
        declared = self.schema.root if self.schema is not None else None
        return declared if declared is not None else _ANY_RESOURCE


class CrdNames(msgspec.Struct, frozen=True, rename="camel"):
    """The names of a kind."""

    plural: str = ""
    kind: str = ""
    singular: str = ""
    list_kind: str = ""
    short_names: list[str] | None = None
    categories: list[str] | None = None


class ConversionSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The way in which objects are converted between versions."""

    strategy: str = "None"
    webhook: dict[str, Any] | None = None


class CrdSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The `spec` of a CRD."""

    group: str
    scope: str
    names: CrdNames
    versions: list[CrdVersionSpec]
    conversion: ConversionSpec | None = None
    preserve_unknown_fields: bool | None = None


class CrdMetadata(msgspec.Struct, frozen=True):
    """The part of a CRD's metadata that identifies it."""

    name: str


class CrdStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The part of a CRD's status that decides whether a version can be removed."""

    stored_versions: list[str] | None = None


class CrdDefinition(msgspec.Struct, frozen=True):
    """A CustomResourceDefinition."""

    metadata: CrdMetadata
    spec: CrdSpec
    status: CrdStatus | None = None

    @property
    def name(self) -> str:
        """The name of the CRD: plural and group."""
        return self.metadata.name

    @property
    def stored_versions(self) -> frozenset[str]:
        """The versions in which objects may be stored, as a cluster reports them; empty for a chart's CRD."""
        stored = self.status.stored_versions if self.status is not None else None
        return frozenset(stored or ())

    @property
    def storage(self) -> CrdVersionSpec:
        """The version that objects are stored in."""
        return next((version for version in self.spec.versions if version.storage), self.spec.versions[0])

    @property
    def conversion(self) -> ConversionSpec:
        """The conversion, `None` if the CRD does not declare one."""
        return self.spec.conversion or _NO_CONVERSION

    def version(self, name: str) -> CrdVersionSpec | None:
        """Return the version of that name, None if the CRD has none."""
        return next((version for version in self.spec.versions if version.name == name), None)


# msgspec prepares a type on its first use, without a lock: two threads that use a nested one for the first time crash
# the process. So it is prepared here, SchemaNode included.
msgspec.json.Decoder(CrdDefinition)

_NO_CONVERSION = ConversionSpec()
_ANY_RESOURCE = SchemaNode(type="object", preserve=True)


def parse_crd(document: Mapping[str, Any] | bytes) -> CrdDefinition:
    """Return a CRD as the comparison reads it.

    Raises `InvalidInput` with the path of the first field that does not have the shape of a CRD.
    """
    crd = _parsed(document, CrdDefinition, "CustomResourceDefinition")
    if not crd.spec.versions:
        raise InvalidInput(
            "a CustomResourceDefinition needs at least one version",
            InvalidField("/spec/versions", "list at least one version"),
        )
    return crd


def parse_schema(document: Mapping[str, Any] | bytes) -> SchemaNode:
    """Return a schema as the comparison reads it.

    Raises `InvalidInput` with the path of the first field that does not have the shape of a schema.
    """
    return _parsed(document, SchemaNode, "schema")


def _parsed(document: Mapping[str, Any] | bytes, type_: type[Parsed], name: str) -> Parsed:
    try:
        if isinstance(document, bytes):
            return msgspec.json.decode(document, type=type_)
        return msgspec.convert(document, type=type_)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `")
        pointer = path.rstrip("`").removeprefix("$").replace("[...]", ".*").replace("[", ".").replace("]", "")
        raise InvalidInput(
            f"the {name} is malformed: {message}", InvalidField(pointer.replace(".", "/") or "/", message)
        ) from error
    except msgspec.DecodeError as error:
        raise InvalidInput(f"the {name} is not JSON: {error}", InvalidField("/", str(error))) from error
    except RecursionError:
        message = "is nested too deeply to be read: flatten it"
        raise InvalidInput(f"the {name} {message}", InvalidField("/", message)) from None
