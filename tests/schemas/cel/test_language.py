"""The language: macros, optional values, and errors that point at their position."""

from typing import Any

import pytest

from kapsa.schemas.cel.expressions import CelCompileError, CelEvaluationError, compile_expression

SELF = (("self", "dyn"),)
VALUE = {"list": [3, 1, 2], "map": {"a": 1, "b": 2}, "text": "x"}


def run(expression: str) -> Any:
    return compile_expression(expression, SELF).evaluate({"self": VALUE})


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("[1, 2].all(index, value, index < value)", True),
        ("self.map.exists(key, value, key == 'b' && value == 2)", True),
        ("self.map.existsOne(key, value, value > 1)", True),
        ("self.list.transformList(index, value, index > 0, value * 10)", [10, 20]),
        ("self.map.transformMap(key, value, value > 1, value + 1)", {"b": 3}),
        ("self.map.transformMapEntry(key, value, {string(value): key})", {"1": "a", "2": "b"}),
        ("self.list.sortBy(item, -item)", [3, 2, 1]),
        ("[3, 1, 2].sort().slice(0, 2)", [1, 2]),
        ("[[1], [2, 3]].flatten().reverse()", [3, 2, 1]),
        ("[1, 1, 2].distinct().size() + lists.range(3).size()", 5),
        ("self.?map.?a.optMap(value, value + 1).orValue(0)", 2),
        ("self.?none.optFlatMap(value, value.?a).hasValue()", False),
        ("[?self.?none, ?self.?text]", ["x"]),
        ("optional.ofNonZeroValue('').or(optional.of('y')).value()", "y"),
        ("[1, 2].first().value() + [1, 2].last().value()", 3),
        ("format.dns1123Label().validate('A').value().size()", 1),
        ("format.named('uuid').value().validate('x').orValue([])", ["does not match the UUID format"]),
        ("[1, 0].exists(x, 1 / x == 1) && (1 / 0 == 1 || true)", True),
        ("[1, 2].map(x, [x].map(x, x * 2)[0] + x)", [3, 6]),
        (
            "string(duration('1h30m')) + string(timestamp('2024-01-02T03:04:05.5Z'))",
            "5400s2024-01-02T03:04:05.5Z",
        ),
        ("type(self.text) == string && type(1u) == uint", True),
    ],
)
def test_an_expression_has_its_value(expression: str, expected: Any) -> None:
    assert run(expression) == expected


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("(1", "ERROR: <input>:1:3: Syntax error: missing ')' at '<EOF>'\n | (1\n | ..^"),
        (
            "[1 2]",
            "ERROR: <input>:1:4: Syntax error: extraneous input '2' expecting {']', ','}\n | [1 2]\n | ...^",
        ),
        ("self.a = 1", "ERROR: <input>:1:8: Syntax error: token recognition error at: '= '\n"),
        (
            "'é' + nope",
            "ERROR: <input>:1:7: undeclared reference to 'nope' (in container '')\n | 'é' + nope\n | .．....^",
        ),
        (
            "true\n&& nope",
            "ERROR: <input>:2:4: undeclared reference to 'nope' (in container '')\n | && nope\n | ...^",
        ),
        ("[1].all(1, true)", "ERROR: <input>:1:9: argument must be a simple name\n"),
        ("[1].all(x, x, true)", "ERROR: <input>:1:12: duplicate variable name: x\n"),
        ("has(1)", "ERROR: <input>:1:5: invalid argument to has() macro\n"),
        ("[1, 'a']", "ERROR: <input>:1:5: expected type 'int' but found 'string'\n"),
        ("as == 1", "ERROR: <input>:1:1: reserved identifier: as\n"),
        (
            "'%d'.format(['a'])",
            "ERROR: <input>:1:14: error during formatting: decimal clause can only be used on",
        ),
        ("'a'.matches('(')", "ERROR: <input>:1:13: invalid matches argument\n"),
        (
            "1 ? 2 : 3",
            "ERROR: <input>:1:3: found no matching overload for '_?_:_' applied to '(int, int, int)'\n",
        ),
        ("type(1).x", "ERROR: <input>:1:8: type 'type(int)' does not support field selection\n"),
    ],
)
def test_an_invalid_expression_is_reported_in_the_words_of_the_real_server(
    expression: str, message: str
) -> None:
    with pytest.raises(CelCompileError) as rejected:
        compile_expression(expression, SELF)
    assert str(rejected.value).startswith(message)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("optional.none().value()", "optional.none() dereference"),
        ("[1, 2].slice(0, 9)", "cannot slice(0, 9), list is length 2"),
        ("self.map.transformMapEntry(k, v, {'same': v})", "insert failed: key same already exists"),
        ("int('x' + self.text)", "type conversion error from 'string' to 'int'"),
        ("self.text.find(self.map)", "no such overload: find(string, map)"),
        ("dyn(1).size()", "no such overload: size"),
        ("-(-9223372036854775808)", "integer overflow"),
    ],
)
def test_a_failing_expression_raises_the_message_of_the_real_server(expression: str, message: str) -> None:
    with pytest.raises(CelEvaluationError) as failed:
        run(expression)
    assert str(failed.value) == message


def test_an_expression_may_be_nested_to_a_limit() -> None:
    assert run("(" * 50 + "1" + ")" * 50) == 1
    with pytest.raises(CelCompileError, match="expression recursion limit exceeded: 250"):
        compile_expression("(" * 300 + "1" + ")" * 300, SELF)
