"""The cost of rules: estimated from the bounds of a schema, and limited when rules run."""

from typing import Any

import pytest

from kapsa.schemas.cel.expressions import CostExceededError, compile_expression
from kapsa.schemas.crd_schema import validate_schema
from kapsa.schemas.schema import Schema
from kapsa.schemas.validation import validate

ADVICE = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength "
    "where arrays, maps, and strings are declared)"
)
NESTED = "self.all(a, self.all(b, a == b))"


def numbers(most: int | None = None, *rules: str) -> dict[str, Any]:
    bound = {} if most is None else {"maxItems": most}
    validations = [{"rule": rule} for rule in rules]
    return {
        "type": "array",
        "items": {"type": "integer"},
        **bound,
        "x-kubernetes-validations": validations,
    }


def errors(spec: dict[str, Any]) -> list[str]:
    schema = {"type": "object", "properties": {"spec": spec}}
    return [str(error) for error in validate_schema(schema, "s", status_enabled=False)]


def test_a_rule_over_the_budget_is_rejected_with_the_factor() -> None:
    field = "s.properties[spec].x-kubernetes-validations[0].rule"
    assert errors(numbers(1000, NESTED)) == []
    assert errors(numbers(2000, NESTED)) == [
        f"{field}: Forbidden: estimated rule cost exceeds budget by factor of 2.0x {ADVICE}"
    ]


def test_rules_that_are_too_expensive_together_are_rejected() -> None:
    lines = errors(numbers(None, NESTED))
    assert [line.partition(": ")[0] for line in lines] == [
        "s.properties[spec].x-kubernetes-validations[0].rule",
        "s.properties[spec].x-kubernetes-validations[0].rule",
        "s",
    ]
    assert "contributed to estimated rule cost total" in lines[1]
    assert lines[2].endswith(f"exceeds budget by factor of more than 100x {ADVICE}")


def test_the_cost_of_a_rule_is_multiplied_by_the_lists_around_it() -> None:
    inner = numbers(500, NESTED)
    assert errors({"type": "array", "maxItems": 2, "items": inner}) == []
    [error] = errors({"type": "array", "maxItems": 20, "items": inner})
    assert "estimated rule cost exceeds budget" in error
    assert errors({"type": "array", "items": inner}) != []


@pytest.mark.parametrize(
    ("rule", "bounded"),
    [
        ("self.contains(self)", {"maxLength": 100}),
        ("self.split(',').all(part, part.size() > 0)", {"maxLength": 100}),
        ("self.matches(self)", {"maxLength": 100}),
    ],
)
def test_a_bound_makes_a_rule_affordable(rule: str, bounded: dict[str, int]) -> None:
    schema = {"type": "string", "x-kubernetes-validations": [{"rule": rule}]}
    assert errors(schema) != []
    assert errors({**schema, **bounded}) == []


def test_a_message_over_the_budget_is_rejected() -> None:
    rule = {"rule": "self != ''", "messageExpression": "self.replace('', self)"}
    assert errors({"type": "string", "x-kubernetes-validations": [rule]}) == []
    rule = {"rule": "self != ''", "messageExpression": "self.contains(self) ? 'a' : 'b'"}
    [error, *_] = errors({"type": "string", "x-kubernetes-validations": [rule]})
    assert error.startswith("s.properties[spec].x-kubernetes-validations[0].messageExpression: Forbidden: ")


def run(rules: list[str], size: int) -> list[str]:
    schema = Schema.from_crd({"type": "object", "properties": {"spec": numbers(1000, *rules)}})
    return [str(error) for error in validate(schema, {"spec": list(range(size))})]


def test_an_evaluation_that_costs_too_much_ends() -> None:
    rule = "self.all(a, self.all(b, a + b >= 0))"
    assert run([rule], 300) == []
    [error] = run([rule, "false"], 400)
    assert error == (
        "spec: Invalid value: \"array\": 'operation cancelled: actual cost limit exceeded': no further validation "
        f"rules will be run due to call cost exceeds limit for rule: {rule}"
    )


def test_the_rules_of_an_object_have_a_budget_together() -> None:
    # A comparison of long strings costs much and takes little.
    rules = [f"self.all(a, a + a != '{number}')" for number in range(40)]
    texts = {**numbers(None, *rules), "items": {"type": "string"}}
    schema = Schema.from_crd({"type": "object", "properties": {"spec": texts}})
    [error] = [str(each) for each in validate(schema, {"spec": ["x" * 20_000] * 100})]
    assert error == (
        'spec: Invalid value: "array": validation failed due to running out of cost budget, '
        "no further validation rules will be run"
    )


@pytest.mark.parametrize(
    ("expression", "items", "value", "cost"),
    [
        ("x.all(v, v > 0)", [1, 2, 3], True, 17),
        ("x.all(v, v > 0)", [0, 1, 2], False, 9),
        ("x.all(i, v, v < 0)", [-1, 0, 5], False, 14),
        ("x.exists(v, v < 0)", [], False, 2),
        ("x.exists(v, v == 3)", [1, 2, 3], True, 20),
        ("x.exists(v, v == 3)", [3, 2, 1], True, 11),
        ("x.exists(v, 1/v > 0)", [0, 1, 2], True, 16),
        ("x.exists(v, 1/v > 0) || true", [2, 0, 0, 3], True, 24),
        ("x.all(v, 1/v > 0) || true", [1, 0, 2], True, 18),
    ],
)
def test_a_quantifier_costs_what_its_expansion_costs(
    expression: str, items: list[int], value: bool, cost: int
) -> None:
    """The numbers are those of the fold that the macro stands for, an error and an early end included."""
    program = compile_expression(expression, (("x", "dyn"),))
    assert program.evaluate_metered({"x": items}, 1000) == (value, cost)
    with pytest.raises(CostExceededError):
        program.evaluate_metered({"x": items}, cost - 1)
