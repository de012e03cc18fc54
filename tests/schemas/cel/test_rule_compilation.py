"""The rules of a CRD are compiled against the types of its schema, with errors in kube-apiserver's words."""

from typing import Any

import pytest

from kapsa.schemas.crd_schema import validate_schema

PROPERTIES: dict[str, Any] = {
    "min": {"type": "integer"},
    "share": {"type": "number"},
    "text": {"type": "string"},
    "foo-bar": {"type": "integer"},
    "at": {"type": "string", "format": "date-time"},
    "port": {"x-kubernetes-int-or-string": True},
    "list": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
    "map": {"type": "object", "additionalProperties": {"type": "integer"}},
}


def details(rule: str, **more: Any) -> list[str]:
    node = {"type": "object", "properties": PROPERTIES, "x-kubernetes-validations": [{"rule": rule, **more}]}
    schema = {"type": "object", "properties": {"spec": node}}
    errors = validate_schema(schema, "s", status_enabled=False)
    assert all(error.field.startswith("s.properties[spec].x-kubernetes-validations[0].") for error in errors)
    return [error.detail for error in errors]


@pytest.mark.parametrize(
    "rule",
    [
        "self.min > 1.5 || self.share > 1",
        "self.foo__dash__bar == 1",
        "self.at < timestamp('2030-01-01T00:00:00Z')",
        "self.port == 80 || self.port == 'http'",
        "self.list.all(item, item.name.startsWith('a'))",
        "self.map.exists(key, self.map[key] > 1)",
        "self.?text.orValue('') == ''",
        "self.min >= oldSelf.min",
        "quantity(self.text).isGreaterThan(quantity('1'))",
    ],
)
def test_a_rule_that_fits_its_schema_is_accepted(rule: str) -> None:
    assert details(rule) == []


@pytest.mark.parametrize(
    "names",
    [["nodeSelector"], ["matchLabels", "match_labels", "MatchLabels"], ["foo-bar", "foo.bar"], ["_a", "__b"]],
)
def test_a_map_of_any_name_does_not_affect_the_rules_next_to_it(names: list[str]) -> None:
    string = {"type": "string"}
    maps = {name: {"type": "object", "additionalProperties": string} for name in names}
    rules = [{"rule": "self.text == ''"}]
    node = {"type": "object", "properties": {"text": string, **maps}, "x-kubernetes-validations": rules}
    schema = {"type": "object", "properties": {"spec": node}}
    assert validate_schema(schema, "s", status_enabled=False) == []


def test_a_rule_sees_the_values_of_a_camel_case_map() -> None:
    labels = {"nodeSelector": {"type": "object", "additionalProperties": {"type": "string"}}}
    node = {"type": "object", "properties": labels}
    rule = {"rule": "self.nodeSelector['a'] == 1"}
    schema = {"type": "object", "properties": {"spec": {**node, "x-kubernetes-validations": [rule]}}}
    (error,) = validate_schema(schema, "s", status_enabled=False)
    assert "'(string, int)'" in error.detail


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("self.mim > 1", "undefined field 'mim'"),
        ("has(self.mim)", "undefined field 'mim'"),
        ("self.list.all(item, item.nam == '')", "undefined field 'nam'"),
        ("self.metadata.name == 'x'", "undefined field 'metadata'"),
        ("self.min == 'a'", "found no matching overload for '_==_' applied to '(int, string)'"),
        ("self.map['a'] == 'x'", "found no matching overload for '_==_' applied to '(int, string)'"),
        ("self.text.startsWith(1)", "found no matching overload for 'startsWith' applied to 'string.(int)'"),
        ("nope(self.min)", "undeclared reference to 'nope' (in container '')"),
        ("self.min >", "Syntax error: mismatched input '<EOF>'"),
    ],
)
def test_a_rule_that_does_not_fit_its_schema_is_rejected(rule: str, message: str) -> None:
    [detail] = details(rule)
    assert detail.startswith("compilation failed: ERROR: <input>:1:")
    assert message in detail
    assert detail.endswith("^")


def test_a_rule_must_be_a_bool_and_a_message_a_string() -> None:
    assert details("self.min") == ["cel expression must evaluate to a bool"]
    assert details("true", messageExpression="self.min") == ["messageExpression must evaluate to a string"]


def test_an_optional_old_self_must_be_used_as_an_optional() -> None:
    assert details("oldSelf.hasValue() || self.min == 0", optionalOldSelf=True) == []
    assert details("self.min == 0", optionalOldSelf=True) == ["may not be set if oldSelf is not used in rule"]
    [detail, unused] = details("oldSelf.hasValue() && self.mim == 0", optionalOldSelf=True)
    assert detail.startswith("compilation failed: ERROR: <input>:1:27: undefined field 'mim'")
    assert unused == "may not be set if oldSelf is not used in rule"


def test_old_self_needs_a_list_with_keys() -> None:
    item = {"type": "object", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}
    schema = {"type": "object", "properties": {"list": {"type": "array", "items": item}}}
    [error] = validate_schema(schema, "s", status_enabled=False)
    assert error.detail == (
        "oldSelf cannot be used on the uncorrelatable portion of the schema within s.properties[list]"
    )


@pytest.mark.parametrize(
    "rule", ["math.greatest(1, 2) == 2", "base64.encode(b'') == ''", "cel.bind(x, 1, x == 1)"]
)
def test_functions_that_the_real_server_does_not_offer_are_rejected(rule: str) -> None:
    [detail] = details(rule)
    assert "undeclared reference to" in detail


def test_rules_of_the_root_can_use_only_the_name_of_metadata() -> None:
    def check(rule: str) -> list[str]:
        schema = {"type": "object", "x-kubernetes-validations": [{"rule": rule}]}
        return [error.detail for error in validate_schema(schema, "s", status_enabled=False)]

    assert check("self.metadata.name != '' && self.kind == 'K'") == []
    assert "undefined field 'labels'" in check("size(self.metadata.labels) > 0")[0]


def test_a_default_must_keep_the_rules_of_its_schema() -> None:
    def check(default: int, **rule: Any) -> list[str]:
        field = {"type": "integer", "default": default, "x-kubernetes-validations": [rule]}
        schema = {"type": "object", "properties": {"a": field}}
        return [str(error) for error in validate_schema(schema, "s", status_enabled=False)]

    assert check(7, rule="self > 6") == []
    assert check(5, rule="self > 6", message="too small") == [
        "s.properties[a].default: Invalid value: 5: too small"
    ]
    assert len(check(5, rule="oldSelf.hasValue() || self > 6", optionalOldSelf=True)) == 1


def test_an_error_in_a_schema_does_not_hide_the_rules_of_other_nodes() -> None:
    wrong = {"type": "integer", "x-kubernetes-validations": [{"rule": ""}]}
    ruled = {"type": "integer", "x-kubernetes-validations": [{"rule": "self.x"}]}
    schema = {"type": "object", "properties": {"a": wrong, "b": ruled}}
    fields = [error.field for error in validate_schema(schema, "s", status_enabled=False)]
    assert fields == [f"s.properties[{name}].x-kubernetes-validations[0].rule" for name in ("a", "b")]
