"""Functions for optional values. `or` and `orValue` are evaluated by the interpreter, which can skip them."""

from __future__ import annotations

from typing import Any

from kapsa.schemas.cel.library.signatures import Functions, function, method
from kapsa.schemas.cel.values import NONE, CelEvaluationError, Optional, is_zero

__all__ = ["FUNCTIONS"]


def _of_non_zero(value: Any) -> Optional:
    return NONE if is_zero(value) else Optional(value)


def _value(optional: Optional) -> Any:
    if not optional.given:
        raise CelEvaluationError("optional.none() dereference")
    return optional.value


def _unwrap(optionals: list[Any]) -> list[Any]:
    if not all(isinstance(item, Optional) for item in optionals):
        raise CelEvaluationError("value is not optional")
    return [item.value for item in optionals if item.given]


def _first(items: list[Any]) -> Optional:
    return Optional(items[0]) if items else NONE


def _last(items: list[Any]) -> Optional:
    return Optional(items[-1]) if items else NONE


def _special(*_: Any) -> Any:
    raise AssertionError("the interpreter evaluates this operator itself")


FUNCTIONS: Functions = {
    "optional.of": [function("optional_of", "V", "optional_type(V)", Optional)],
    "optional.ofNonZeroValue": [function("optional_ofNonZeroValue", "V", "optional_type(V)", _of_non_zero)],
    "optional.none": [function("optional_none", "", "optional_type(V)", lambda: NONE)],
    "value": [method("optional_value", "optional_type(V)", "V", _value)],
    "hasValue": [method("optional_hasValue", "optional_type(V)", "bool", lambda optional: optional.given)],
    "or": [
        method("optional_or_optional", "optional_type(V); optional_type(V)", "optional_type(V)", _special)
    ],
    "orValue": [method("optional_orValue_value", "optional_type(V); V", "V", _special)],
    "_?._": [function("select_optional_field", "dyn; string", "optional_type(V)", _special)],
    "_[?_]": [
        function("list_optindex_optional_int", "list(V); int", "optional_type(V)", _special),
        function(
            "optional_list_optindex_optional_int", "optional_type(list(V)); int", "optional_type(V)", _special
        ),
        function("map_optindex_optional_value", "map(K, V); K", "optional_type(V)", _special),
        function(
            "optional_map_optindex_optional_value",
            "optional_type(map(K, V)); K",
            "optional_type(V)",
            _special,
        ),
    ],
    "last": [method("list_last", "list(V)", "optional_type(V)", _last)],
    "first": [method("list_first", "list(V)", "optional_type(V)", _first)],
    "optional.unwrap": [function("optional_unwrap", "list(optional_type(V))", "list(V)", _unwrap)],
    "unwrapOpt": [method("optional_unwrapOpt", "list(optional_type(V))", "list(V)", _unwrap)],
}
