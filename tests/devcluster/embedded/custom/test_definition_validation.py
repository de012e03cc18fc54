"""Invalid CustomResourceDefinitions are rejected in the real server's words."""

from typing import Any

import pytest

from kapsa.devcluster.embedded.strategies.custom.definition_validation import (
    set_defaults,
    validate_definition,
    validate_definition_update,
    warnings,
)

OPEN = "spec.validation.openAPIV3Schema"


def definition(schema: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    version: dict[str, Any] = {"name": "v1", "served": True, "storage": True}
    version["schema"] = {"openAPIV3Schema": {"type": "object"} if schema is None else schema}
    crd = {
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [version],
            **spec,
        },
        "status": {"storedVersions": ["v1"]},
    }
    set_defaults(crd)
    return crd


def texts(crd: dict[str, Any]) -> list[str]:
    return [str(error) for error in validate_definition(crd)]


def spec_schema(spec: dict[str, Any]) -> list[str]:
    return texts(definition({"type": "object", "properties": {"spec": spec}}))


def test_a_plain_definition_is_accepted_and_gets_its_defaults() -> None:
    crd = definition()
    assert texts(crd) == []
    assert crd["spec"]["names"]["singular"] == "widget"
    assert crd["spec"]["names"]["listKind"] == "WidgetList"
    assert crd["spec"]["conversion"] == {"strategy": "None"}


def test_the_name_is_made_of_plural_and_group() -> None:
    crd = definition()
    crd["metadata"]["name"] = "other.example.com"
    assert texts(crd) == [
        'metadata.name: Invalid value: "other.example.com": must be spec.names.plural+"."+spec.group'
    ]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"group": "example"},
            'spec.group: Invalid value: "example": should be a domain with at least one dot',
        ),
        (
            {"scope": "World"},
            'spec.scope: Unsupported value: "World": supported values: "Cluster", "Namespaced"',
        ),
        ({"scope": ""}, "spec.scope: Required value"),
        (
            {"preserveUnknownFields": True},
            (
                "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set "
                "x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
            ),
        ),
        (
            {"conversion": {"strategy": "Magic"}},
            'spec.conversion.strategy: Unsupported value: "Magic": supported values: "None", "Webhook"',
        ),
    ],
)
def test_the_spec_is_checked(spec: dict[str, Any], message: str) -> None:
    assert message in texts(definition(**spec))


def test_exactly_one_version_is_stored() -> None:
    crd = definition()
    crd["spec"]["versions"][0]["storage"] = False
    assert texts(crd)[0] == (
        'spec.versions: Invalid value: [{"Name":"v1","Served":true,"Storage":false,"Deprecated":false,'
        '"DeprecationWarning":null,"Schema":null,"Subresources":null,"AdditionalPrinterColumns":null,'
        '"SelectableFields":null}]: must have exactly one version marked as storage version'
    )


def test_a_version_without_a_schema_is_rejected() -> None:
    crd = definition()
    del crd["spec"]["versions"][0]["schema"]
    assert texts(crd) == ["spec.versions[0].schema.openAPIV3Schema: Required value"]


def test_versions_that_differ_are_reported_by_their_index() -> None:
    crd = definition()
    other = {"name": "v2", "served": True, "storage": False}
    crd["spec"]["versions"].append({**other, "schema": {"openAPIV3Schema": {"type": "array"}}})
    assert texts(crd) == [
        "spec.versions[1].schema.openAPIV3Schema.items: Required value: must be specified",
        'spec.versions[1].schema.openAPIV3Schema.type: Invalid value: "array": must be object at the root',
    ]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, f"{OPEN}.properties[spec].type: Required value: must not be empty for specified object fields"),
        ({"type": "array"}, f"{OPEN}.properties[spec].items: Required value: must be specified"),
        (
            {"type": "strng"},
            (
                f'{OPEN}.properties[spec].type: Unsupported value: "strng": supported values: "array", "boolean", '
                '"integer", "number", "object", "string"'
            ),
        ),
        (
            {"type": "string", "pattern": "("},
            (
                f'{OPEN}.properties[spec].pattern: Invalid value: "(": must be a valid regular expression, '
                "but isn't: error parsing regexp: missing closing ): `(`"
            ),
        ),
        (
            {"type": "object", "anyOf": [{"properties": {"a": {"type": "string"}}}]},
            f"{OPEN}.properties[spec].anyOf[0].properties[a].type: Forbidden: must be empty to be structural",
        ),
        (
            {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
            (
                f"{OPEN}.properties[spec].uniqueItems: Forbidden: uniqueItems cannot be set to true since the "
                "runtime complexity becomes quadratic"
            ),
        ),
        (
            {"type": "object", "properties": {}, "x-kubernetes-list-type": "map"},
            (
                f'{OPEN}.properties[spec].type: Invalid value: "object": must be array if x-kubernetes-list-type '
                "is specified"
            ),
        ),
        (
            {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "properties": {"name": {"type": "string"}}},
            },
            (
                f"{OPEN}.properties[spec].items.properties[name].default: Required value: this property is in "
                "x-kubernetes-list-map-keys, so it must have a default or be a required property"
            ),
        ),
        (
            {"type": "integer", "default": "x"},
            f'{OPEN}.properties[spec].default: Invalid value: "string":  in body must be of type integer: "string"',
        ),
        (
            {"type": "object", "properties": {"a": {"type": "string"}}, "default": {"b": 1}},
            f'{OPEN}.properties[spec].default: Invalid value: {{"b":1}}: must not have unknown fields',
        ),
        (
            {
                "type": "object",
                "properties": {"a": {"type": "string"}},
                "additionalProperties": {"type": "string"},
            },
            (
                f"{OPEN}.properties[spec].additionalProperties: Forbidden: additionalProperties and properties are "
                "mutual exclusive"
            ),
        ),
        (
            {"type": "object", "$ref": "#/definitions/x"},
            f"{OPEN}.properties[spec].$ref: Forbidden: $ref is not supported",
        ),
    ],
)
def test_a_schema_that_is_not_structural_is_rejected(spec: dict[str, Any], message: str) -> None:
    assert message in spec_schema(spec)


def test_int_or_string_may_be_written_as_an_any_of() -> None:
    both = [{"type": "integer"}, {"type": "string"}]
    assert spec_schema({"x-kubernetes-int-or-string": True, "anyOf": both}) == []


def test_metadata_may_restrict_the_name_only() -> None:
    named = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 3}}}
    assert texts(definition({"type": "object", "properties": {"metadata": named}})) == []
    labelled = {"type": "object", "properties": {"labels": {"type": "object"}}}
    assert texts(definition({"type": "object", "properties": {"metadata": labelled}})) == [
        (
            f"{OPEN}.properties[metadata]: Forbidden: must not specify anything other than name and generateName, "
            "but metadata is implicitly specified"
        )
    ]


def test_printer_columns_and_scale_are_checked() -> None:
    crd = definition()
    crd["spec"]["versions"][0]["additionalPrinterColumns"] = [
        {"name": "x", "type": "text", "jsonPath": "spec"}
    ]
    crd["spec"]["versions"][0]["subresources"] = {
        "scale": {"specReplicasPath": ".status.x", "statusReplicasPath": ""}
    }
    assert texts(crd) == [
        'spec.subresources.scale.specReplicasPath: Invalid value: ".status.x": should be a json path under .spec',
        "spec.subresources.scale.statusReplicasPath: Required value",
        'spec.additionalPrinterColumns[0].type: Invalid value: "text": must be one of boolean,date,integer,number,string',
        'spec.additionalPrinterColumns[0].JSONPath: Invalid value: "spec": must be a simple json path starting with .',
    ]


def test_a_conversion_webhook_needs_an_address_and_versions() -> None:
    assert texts(definition(conversion={"strategy": "Webhook"})) == [
        "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
        "spec.conversion.conversionReviewVersions: Required value",
    ]


def test_kubernetes_groups_need_an_approval() -> None:
    crd = definition(group="example.k8s.io")
    crd["metadata"]["name"] = "widgets.example.k8s.io"
    [message] = texts(crd)
    assert message.startswith(
        "metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have"
    )


def test_group_and_plural_never_change_and_kind_not_once_established() -> None:
    old = definition()
    old["status"]["conditions"] = [{"type": "Established", "status": "True"}]
    new = definition(scope="Cluster")
    errors = [str(error) for error in validate_definition_update(new, old)]
    assert errors == ['spec.scope: Invalid value: "Cluster": field is immutable']


def test_a_stored_version_must_stay_in_the_spec() -> None:
    crd = definition()
    crd["status"]["storedVersions"] = ["v0", "v1"]
    [message] = texts(crd)
    assert message.startswith('status.storedVersions[0]: Invalid value: "v0": missing from spec.versions;')


def test_unknown_formats_cause_a_warning() -> None:
    crd = definition({"type": "object", "properties": {"a": {"type": "string", "format": "made-up"}}})
    assert warnings(crd, None) == ['unrecognized format "made-up"']
    assert warnings(crd, crd) == []
