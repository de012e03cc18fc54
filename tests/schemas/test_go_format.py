"""Values are printed as Go prints them."""

from __future__ import annotations

from typing import Any

import pytest

from kapsa.schemas.go_format import GoStruct, format_float, format_syntax, format_value, marshal, quote


@pytest.mark.parametrize(
    ("value", "plain", "syntax"),
    [
        (None, "<nil>", "interface {}(nil)"),
        (True, "true", "true"),
        (7, "7", "7"),
        (1.5, "1.5", "1.5"),
        ("a b", "a b", '"a b"'),
        ({"b": [1, "x"], "a": {}}, "map[a:map[] b:[1 x]]", None),
        ({"a": [1]}, "map[a:[1]]", 'map[string]interface {}{"a":[]interface {}{1}}'),
    ],
)
def test_a_value_has_its_two_forms(value: Any, plain: str, syntax: str | None) -> None:
    assert format_value(value) == plain
    if syntax is not None:
        assert format_syntax(value) == syntax


@pytest.mark.parametrize(
    ("value", "text"),
    [(2.0, "2"), (0.1, "0.1"), (1e21, "1e+21"), (float("inf"), "+Inf"), (float("nan"), "NaN")],
)
def test_a_float_has_its_shortest_form(value: float, text: str) -> None:
    assert format_float(value) == text


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("plain", '"plain"'),
        ('say "hi"\n', '"say \\"hi\\"\\n"'),
        ("\x00", '"\\x00"'),
        ("é", '"é"'),
        ("\u200b", '"\\u200b"'),
    ],
)
def test_a_string_is_quoted_with_escapes(text: str, quoted: str) -> None:
    assert quote(text) == quoted


def test_json_sorts_maps_but_not_structs_and_escapes_html() -> None:
    assert marshal({"b": "<&>", "a": 1}) == '{"a":1,"b":"\\u003c\\u0026\\u003e"}'
    assert marshal(GoStruct(B=1, A=2)) == '{"B":1,"A":2}'
