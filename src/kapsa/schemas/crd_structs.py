"""Parts of a CRD as kube-apiserver prints them in its messages: its internal Go structs, field by field."""

from __future__ import annotations

from typing import Any

from kapsa.schemas.go_format import GoStruct

__all__ = ["rule_struct", "schema_struct", "version_struct"]

Raw = dict[str, Any]
_SCHEMA_FIELDS = (
    ("ID", "id", ""),
    ("Schema", "$schema", ""),
    ("Ref", "$ref", None),
    ("Description", "description", ""),
    ("Type", "type", ""),
    ("Nullable", "nullable", False),
    ("Format", "format", ""),
    ("Title", "title", ""),
    ("Default", "default", None),
    ("Maximum", "maximum", None),
    ("ExclusiveMaximum", "exclusiveMaximum", False),
    ("Minimum", "minimum", None),
    ("ExclusiveMinimum", "exclusiveMinimum", False),
    ("MaxLength", "maxLength", None),
    ("MinLength", "minLength", None),
    ("Pattern", "pattern", ""),
    ("MaxItems", "maxItems", None),
    ("MinItems", "minItems", None),
    ("UniqueItems", "uniqueItems", False),
    ("MultipleOf", "multipleOf", None),
    ("Enum", "enum", None),
    ("MaxProperties", "maxProperties", None),
    ("MinProperties", "minProperties", None),
    ("Required", "required", None),
    ("Items", "items", None),
    ("AllOf", "allOf", None),
    ("OneOf", "oneOf", None),
    ("AnyOf", "anyOf", None),
    ("Not", "not", None),
    ("Properties", "properties", None),
    ("AdditionalProperties", "additionalProperties", None),
    ("PatternProperties", "patternProperties", None),
    ("Dependencies", "dependencies", None),
    ("AdditionalItems", "additionalItems", None),
    ("Definitions", "definitions", None),
    ("ExternalDocs", "externalDocs", None),
    ("Example", "example", None),
    ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields", None),
    ("XEmbeddedResource", "x-kubernetes-embedded-resource", False),
    ("XIntOrString", "x-kubernetes-int-or-string", False),
    ("XListMapKeys", "x-kubernetes-list-map-keys", None),
    ("XListType", "x-kubernetes-list-type", None),
    ("XMapType", "x-kubernetes-map-type", None),
    ("XValidations", "x-kubernetes-validations", None),
)


def schema_struct(schema: Raw) -> GoStruct:
    """Return a schema as a `JSONSchemaProps`."""
    shown = GoStruct({name: schema.get(key, zero) for name, key, zero in _SCHEMA_FIELDS})
    for name in ("AllOf", "OneOf", "AnyOf"):
        if shown[name] is not None:
            shown[name] = [schema_struct(branch) for branch in shown[name]]
    for name in ("Properties", "PatternProperties", "Definitions"):
        if shown[name] is not None:
            shown[name] = {key: schema_struct(child) for key, child in shown[name].items()}
    if shown["Not"] is not None:
        shown["Not"] = schema_struct(shown["Not"])
    if isinstance(shown["Items"], dict):
        shown["Items"] = GoStruct(Schema=schema_struct(shown["Items"]), JSONSchemas=None)
    additional = shown["AdditionalProperties"]
    if additional is not None:
        inner = schema_struct(additional) if isinstance(additional, dict) else None
        shown["AdditionalProperties"] = GoStruct(Allows=additional is not False, Schema=inner)
    if shown["XValidations"] is not None:
        shown["XValidations"] = [rule_struct(rule) for rule in shown["XValidations"]]
    return shown


def rule_struct(rule: Raw) -> GoStruct:
    """Return a rule as a `ValidationRule`."""
    return GoStruct(
        Rule=rule.get("rule", ""),
        Message=rule.get("message", ""),
        MessageExpression=rule.get("messageExpression", ""),
        Reason=rule.get("reason"),
        FieldPath=rule.get("fieldPath", ""),
        OptionalOldSelf=rule.get("optionalOldSelf"),
    )


def version_struct(version: Raw) -> GoStruct:
    """Return a version as a `CustomResourceDefinitionVersion`."""
    schema = version.get("schema")
    if schema is not None:
        inner = schema.get("openAPIV3Schema")
        schema = GoStruct(OpenAPIV3Schema=None if inner is None else schema_struct(inner))
    return GoStruct(
        Name=version.get("name", ""),
        Served=bool(version.get("served")),
        Storage=bool(version.get("storage")),
        Deprecated=bool(version.get("deprecated")),
        DeprecationWarning=version.get("deprecationWarning"),
        Schema=schema,
        Subresources=_subresources(version.get("subresources")),
        AdditionalPrinterColumns=_columns(version.get("additionalPrinterColumns")),
        SelectableFields=_selectable(version.get("selectableFields")),
    )


def _subresources(subresources: Raw | None) -> GoStruct | None:
    if subresources is None:
        return None
    scale = subresources.get("scale")
    if scale is not None:
        scale = GoStruct(
            SpecReplicasPath=scale.get("specReplicasPath", ""),
            StatusReplicasPath=scale.get("statusReplicasPath", ""),
            LabelSelectorPath=scale.get("labelSelectorPath"),
        )
    return GoStruct(Status=subresources.get("status"), Scale=scale)


def _columns(columns: list[Raw] | None) -> list[GoStruct] | None:
    if columns is None:
        return None
    return [
        GoStruct(
            Name=column.get("name", ""),
            Type=column.get("type", ""),
            Format=column.get("format", ""),
            Description=column.get("description", ""),
            Priority=column.get("priority", 0),
            JSONPath=column.get("jsonPath", ""),
        )
        for column in columns
    ]


def _selectable(fields: list[Raw] | None) -> list[GoStruct] | None:
    return None if fields is None else [GoStruct(JSONPath=field.get("jsonPath", "")) for field in fields]
