"""The changes that crdify and crd-schema-checker judge wrongly, judged rightly."""

from __future__ import annotations

from tests.fleet.domain.crds.resources import (
    BREAKING,
    SAFE,
    WARNING,
    compare,
    comparison,
    crd,
    field_of,
    object_of,
    rules,
    severity,
    version,
)

STRING = {"type": "string"}
LIST = {"type": "array", "items": STRING}


def test_a_required_field_with_a_reached_default_is_not_breaking() -> None:
    nested = {**STRING, "default": "a"}
    old = {"type": "array", "items": object_of({"b": nested})}
    new = {"type": "array", "items": object_of({"b": nested}, required=["b"])}
    assert severity(field_of(old), field_of(new)) is SAFE


def test_a_dropped_enum_is_safe() -> None:
    assert severity(field_of({**STRING, "enum": ["a"]}), field_of(STRING)) is SAFE


def test_min_items_of_zero_is_no_change() -> None:
    assert compare(field_of(LIST), field_of({**LIST, "minItems": 0})) == []


def test_an_integer_that_becomes_a_number_is_a_warning() -> None:
    findings = compare(field_of({"type": "integer"}), field_of({"type": "number"}))
    assert rules(findings) == ["warning type-widened spec.field"]


def test_a_reordered_one_of_is_no_change() -> None:
    branches = [{"required": ["a"]}, {"required": ["b"]}]
    fields = {"a": STRING, "b": STRING}
    assert (
        compare(
            field_of(object_of(fields, oneOf=branches)), field_of(object_of(fields, oneOf=branches[::-1]))
        )
        == []
    )


def test_an_added_default_is_not_breaking() -> None:
    assert severity(field_of(STRING), field_of({**STRING, "default": "a"})) is WARNING


def test_an_added_description_is_no_change() -> None:
    assert compare(field_of(STRING), field_of({**STRING, "description": "what it is"})) == []


def test_a_version_that_is_not_served_any_more_is_breaking() -> None:
    old = crd(version("v1beta1", storage=False), version("v1"))
    new = crd(version("v1beta1", storage=False, served=False), version("v1"))
    assert rules(comparison(old, new).findings) == ["breaking version-unserved spec.versions[v1beta1].served"]


def test_a_moved_storage_flag_is_reported() -> None:
    old = crd(version("v1beta1"), version("v1", storage=False))
    new = crd(version("v1beta1", storage=False), version("v1"))
    assert rules(comparison(old, new).findings) == ["warning storage-moved spec.versions[v1].storage"]


def test_a_changed_conversion_is_reported() -> None:
    webhook = {
        "strategy": "Webhook",
        "webhook": {"clientConfig": {"service": {"name": "w", "namespace": "n"}}},
    }
    findings = comparison(crd(), crd(conversion=webhook)).findings
    assert rules(findings) == ["warning conversion-changed spec.conversion"]


def test_a_dropped_subresource_is_breaking() -> None:
    scale = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}
    old = crd(version(subresources={"status": {}, "scale": scale}))
    assert rules(comparison(old, crd()).findings) == [
        "breaking subresource-removed spec.versions[v1].subresources.scale",
        "breaking subresource-removed spec.versions[v1].subresources.status",
    ]


def test_a_removed_selectable_field_is_a_warning() -> None:
    old = crd(version(selectableFields=[{"jsonPath": ".spec.size"}]))
    findings = comparison(old, crd()).findings
    assert rules(findings) == ["warning selectable-field-removed spec.versions[v1].selectableFields"]


def test_the_bound_of_a_list_is_min_items_and_not_min_length() -> None:
    assert compare(field_of(LIST), field_of({**LIST, "minLength": 5})) == []
    assert severity(field_of(LIST), field_of({**LIST, "minItems": 5})) is BREAKING


def test_a_new_enum_does_not_pass() -> None:
    assert severity(field_of(STRING), field_of({**STRING, "enum": ["a"]})) is BREAKING


def test_bounds_patterns_formats_and_rules_are_compared() -> None:
    for facet in (
        {"maxLength": 5},
        {"pattern": "^a"},
        {"format": "ipv4"},
        {"x-kubernetes-validations": [{"rule": "self != ''"}]},
    ):
        assert severity(field_of(STRING), field_of({**STRING, **facet})) is BREAKING, facet


def test_types_are_compared_next_to_one_of_and_any_of() -> None:
    for junctor in ("oneOf", "anyOf"):
        old = object_of({"a": STRING, "b": STRING}, **{junctor: [{"required": ["a"]}, {"required": ["b"]}]})
        new = object_of({"a": {"type": "integer"}, "b": STRING}, **{junctor: old[junctor]})
        assert rules(compare(field_of(old), field_of(new))) == ["breaking type-changed spec.field.a"]


def test_restrictions_below_one_of_and_any_of_are_compared() -> None:
    for junctor in ("oneOf", "anyOf"):
        old = object_of({"a": STRING}, **{junctor: [{"properties": {"a": {"maxLength": 5}}}]})
        new = object_of({"a": STRING}, **{junctor: [{"properties": {"a": {"maxLength": 4}}}]})
        assert rules(compare(field_of(old), field_of(new))) == ["breaking branches-narrowed spec.field"]


def test_a_removed_version_is_visited() -> None:
    old = crd(version("v1beta1", storage=False), version("v1"))
    assert rules(comparison(old, crd()).findings) == ["breaking version-removed spec.versions[v1beta1]"]
