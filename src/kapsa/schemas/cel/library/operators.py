"""The operators of CEL, and the conversions between its types."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from kapsa.schemas import go_regexp
from kapsa.schemas.cel.language.syntax import UInt
from kapsa.schemas.cel.library.signatures import Functions, function, method
from kapsa.schemas.cel.values import (
    NO_OVERLOAD,
    CelDuration,
    CelEvaluationError,
    MapList,
    SetList,
    Timestamp,
    TypeValue,
    compare,
    equals,
    format_double,
    type_name,
)

__all__ = ["FUNCTIONS"]

_MAX = 1 << 63


def _integer(value: int) -> int:
    if not -_MAX <= value < _MAX:
        raise CelEvaluationError("integer overflow")
    return value


def _unsigned(value: int) -> UInt:
    if not 0 <= value < 2 * _MAX:
        raise CelEvaluationError("unsigned integer overflow")
    return UInt(value)


def _duration(nanoseconds: int) -> CelDuration:
    if not -_MAX <= nanoseconds < _MAX:
        raise CelEvaluationError("duration overflow")
    return CelDuration(nanoseconds)


def _number(one: Any, other: Any, value: Any) -> Any:
    """Return the result of arithmetic on two numbers of one type, checked for overflow."""
    kind = type(one)
    if kind is not type(other):
        raise CelEvaluationError(NO_OVERLOAD)
    if kind is int:
        return _integer(value)
    return _unsigned(value) if kind is UInt else value


def _add(one: Any, other: Any) -> Any:
    kind = type(one)
    if kind in (int, UInt, float):
        if kind is not type(other):
            raise CelEvaluationError(NO_OVERLOAD)
        return _number(one, other, one + other)
    if isinstance(one, list) and isinstance(other, list):
        return one.plus(other) if isinstance(one, (SetList, MapList)) else [*one, *other]
    if kind in (str, bytes) and kind is type(other):
        return one + other
    if kind is CelDuration and isinstance(other, CelDuration):
        return _duration(one.nanoseconds + other.nanoseconds)
    if {kind, type(other)} == {CelDuration, Timestamp}:
        return Timestamp(one.nanoseconds + other.nanoseconds).checked()
    raise CelEvaluationError(f"{NO_OVERLOAD}: _+_" if kind is bool or one is None else NO_OVERLOAD)


def _subtract(one: Any, other: Any) -> Any:
    kind = type(one)
    if kind in (int, UInt, float) and kind is type(other):
        return _number(one, other, int(one) - int(other) if kind is not float else one - other)
    if kind is Timestamp and isinstance(other, Timestamp):
        return _duration(one.nanoseconds - other.nanoseconds)
    if kind is Timestamp and isinstance(other, CelDuration):
        return Timestamp(one.nanoseconds - other.nanoseconds).checked()
    if kind is CelDuration and isinstance(other, CelDuration):
        return _duration(one.nanoseconds - other.nanoseconds)
    raise CelEvaluationError(NO_OVERLOAD)


def _multiply(one: Any, other: Any) -> Any:
    kind = type(one)
    if kind not in (int, UInt, float) or kind is not type(other):
        raise CelEvaluationError(NO_OVERLOAD)
    return _number(one, other, one * other)


def _divide(one: Any, other: Any) -> Any:
    kind = type(one)
    if kind not in (int, UInt, float) or kind is not type(other):
        raise CelEvaluationError(NO_OVERLOAD)
    if kind is float:
        if other == 0:
            return (
                math.nan
                if one == 0 or math.isnan(one)
                else math.copysign(math.inf, one) * math.copysign(1, other)
            )
        return one / other
    if other == 0:
        raise CelEvaluationError("division by zero")
    quotient = abs(one) // abs(other)
    return _number(one, other, quotient if (one < 0) == (other < 0) else -quotient)


def _modulo(one: Any, other: Any) -> Any:
    kind = type(one)
    if kind not in (int, UInt) or kind is not type(other):
        raise CelEvaluationError(NO_OVERLOAD)
    if other == 0:
        raise CelEvaluationError("modulus by zero")
    rest = abs(one) % abs(other)
    return _number(one, other, -rest if one < 0 else rest)


def _negate(value: Any) -> Any:
    if type(value) is int:
        return _integer(-value)
    if type(value) is float:
        return -value
    raise CelEvaluationError(NO_OVERLOAD)


def _not(value: Any) -> bool:
    if type(value) is not bool:
        raise CelEvaluationError(NO_OVERLOAD)
    return not value


def _index(container: Any, key: Any) -> Any:
    if isinstance(container, list):
        if isinstance(key, float) and key == int(key):
            key = int(key)
        if isinstance(key, bool) or not isinstance(key, int):
            raise CelEvaluationError(f"unsupported index type '{type_name(key)}' in list")
        if not 0 <= key < len(container):
            raise CelEvaluationError(f"index out of bounds: {key}")
        return container[key]
    if isinstance(container, dict):
        if key not in container:
            raise CelEvaluationError(f"no such key: {show_key(key)}")
        return container[key]
    raise CelEvaluationError(NO_OVERLOAD)


def show_key(key: Any) -> str:
    """Return a map's key as Go prints it."""
    if isinstance(key, bool):
        return "true" if key else "false"
    return format_double(key) if isinstance(key, float) else str(key)


def _contains(value: Any, container: Any) -> bool:
    if isinstance(container, dict):
        return value in container
    if isinstance(container, list):
        return any(equals(item, value) for item in container)
    raise CelEvaluationError(f"{NO_OVERLOAD}: @in")


def _size(value: Any) -> int:
    if isinstance(value, (str, bytes, list, dict)):
        return len(value)
    raise CelEvaluationError(f"{NO_OVERLOAD}: size")


def _failure(value: Any, target: str) -> CelEvaluationError:
    return CelEvaluationError(f"type conversion error from '{type_name(value)}' to '{target}'")


def _to_int(value: Any) -> int:
    if isinstance(value, float):
        if math.isnan(value) or not -_MAX < value < _MAX:
            raise CelEvaluationError("integer overflow")
        return int(value)
    if isinstance(value, str):
        digits = value[1:] if value[:1] in ("+", "-") else value
        if not (digits.isascii() and digits.isdigit()) or not -_MAX <= int(value) < _MAX:
            raise _failure(value, "int")
        return int(value)
    if isinstance(value, Timestamp):
        return value.nanoseconds // 10**9
    if isinstance(value, CelDuration):
        return value.nanoseconds
    return _integer(int(value))


def _to_uint(value: Any) -> UInt:
    if isinstance(value, float) and (math.isnan(value) or not 0 <= value < 2 * _MAX):
        raise CelEvaluationError("unsigned integer overflow")
    if isinstance(value, str) and (not (value.isascii() and value.isdigit()) or int(value) >= 2 * _MAX):
        raise _failure(value, "uint")
    return _unsigned(int(value))


def _to_double(value: Any) -> float:
    try:
        return float(value)
    except ValueError:
        raise _failure(value, "double") from None


def _to_bool(text: str) -> bool:
    if text in ("1", "t", "T", "TRUE", "true", "True"):
        return True
    if text in ("0", "f", "F", "FALSE", "false", "False"):
        return False
    raise _failure(text, "bool")


def to_string(value: Any) -> str:
    """Convert a value as `string(value)` does."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return format_double(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise CelEvaluationError("invalid UTF-8 in bytes, cannot convert to string") from None
    return str(value)


def _to_timestamp(value: Any) -> Timestamp:
    if isinstance(value, str):
        try:
            return Timestamp.parse(value)
        except ValueError:
            raise _failure(value, "google.protobuf.Timestamp") from None
    return Timestamp(value * 10**9).checked() if isinstance(value, int) else value


def _to_duration(value: Any) -> CelDuration:
    if isinstance(value, str):
        try:
            return CelDuration.parse(value)
        except ValueError:
            raise _failure(value, "google.protobuf.Duration") from None
    return CelDuration(value) if isinstance(value, int) else value


def _identity(value: Any) -> Any:
    return value


def matches(text: Any, pattern: Any) -> bool:
    """Return whether a regular expression of Go matches somewhere in a text."""
    if not isinstance(text, str) or not isinstance(pattern, str):
        raise CelEvaluationError(NO_OVERLOAD)
    try:
        return go_regexp.compile_pattern(pattern).search(text) is not None
    except ValueError as error:
        raise CelEvaluationError(str(error)) from None


def _special(*_: Any) -> Any:
    raise AssertionError("the interpreter evaluates this operator itself")


def _order(name: str, test: Callable[[int], bool]) -> list[Any]:
    compute = lambda one, other: test(compare(one, other))  # noqa: E731
    same = [
        ("bool", "bool"),
        ("int64", "int"),
        ("uint64", "uint"),
        ("double", "double"),
        ("string", "string"),
        ("bytes", "bytes"),
        ("timestamp", "timestamp"),
        ("duration", "duration"),
    ]
    mixed = [
        ("int64_double", "int; double"),
        ("int64_uint64", "int; uint"),
        ("uint64_double", "uint; double"),
        ("uint64_int64", "uint; int"),
        ("double_int64", "double; int"),
        ("double_uint64", "double; uint"),
    ]
    return [function(f"{name}_{id_}", f"{kind}; {kind}", "bool", compute) for id_, kind in same] + [
        function(f"{name}_{id_}", kinds, "bool", compute) for id_, kinds in mixed
    ]


FUNCTIONS: Functions = {
    "_?_:_": [function("conditional", "bool; A; A", "A", _special)],
    "_&&_": [function("logical_and", "bool; bool", "bool", _special)],
    "_||_": [function("logical_or", "bool; bool", "bool", _special)],
    "!_": [function("logical_not", "bool", "bool", _not)],
    "@not_strictly_false": [function("not_strictly_false", "bool", "bool", _special)],
    "_==_": [function("equals", "A; A", "bool", equals)],
    "_!=_": [function("not_equals", "A; A", "bool", lambda one, other: not equals(one, other))],
    "_<_": _order("less", lambda sign: sign < 0),
    "_<=_": _order("less_equals", lambda sign: sign <= 0),
    "_>_": _order("greater", lambda sign: sign > 0),
    "_>=_": _order("greater_equals", lambda sign: sign >= 0),
    "_+_": [
        function("add_bytes", "bytes; bytes", "bytes", _add),
        function("add_double", "double; double", "double", _add),
        function("add_duration_duration", "duration; duration", "duration", _add),
        function("add_duration_timestamp", "duration; timestamp", "timestamp", _add),
        function("add_timestamp_duration", "timestamp; duration", "timestamp", _add),
        function("add_int64", "int; int", "int", _add),
        function("add_list", "list(A); list(A)", "list(A)", _add),
        function("add_string", "string; string", "string", _add),
        function("add_uint64", "uint; uint", "uint", _add),
    ],
    "_-_": [
        function("subtract_double", "double; double", "double", _subtract),
        function("subtract_duration_duration", "duration; duration", "duration", _subtract),
        function("subtract_int64", "int; int", "int", _subtract),
        function("subtract_timestamp_duration", "timestamp; duration", "timestamp", _subtract),
        function("subtract_timestamp_timestamp", "timestamp; timestamp", "duration", _subtract),
        function("subtract_uint64", "uint; uint", "uint", _subtract),
    ],
    "_*_": [
        function("multiply_double", "double; double", "double", _multiply),
        function("multiply_int64", "int; int", "int", _multiply),
        function("multiply_uint64", "uint; uint", "uint", _multiply),
    ],
    "_/_": [
        function("divide_double", "double; double", "double", _divide),
        function("divide_int64", "int; int", "int", _divide),
        function("divide_uint64", "uint; uint", "uint", _divide),
    ],
    "_%_": [
        function("modulo_int64", "int; int", "int", _modulo),
        function("modulo_uint64", "uint; uint", "uint", _modulo),
    ],
    "-_": [
        function("negate_double", "double", "double", _negate),
        function("negate_int64", "int", "int", _negate),
    ],
    "_[_]": [
        function("index_list", "list(A); int", "A", _index),
        function("index_map", "map(A, B); A", "B", _index),
        function("optional_list_index_int", "optional_type(list(V)); int", "optional_type(V)", _special),
        function("optional_map_index_value", "optional_type(map(K, V)); K", "optional_type(V)", _special),
    ],
    "@in": [
        function("in_list", "A; list(A)", "bool", _contains),
        function("in_map", "A; map(A, B)", "bool", _contains),
    ],
    "size": [
        function("size_bytes", "bytes", "int", _size),
        method("bytes_size", "bytes", "int", _size),
        function("size_list", "list(A)", "int", _size),
        method("list_size", "list(A)", "int", _size),
        function("size_map", "map(A, B)", "int", _size),
        method("map_size", "map(A, B)", "int", _size),
        function("size_string", "string", "int", _size),
        method("string_size", "string", "int", _size),
    ],
    "type": [function("type", "A", "type(A)", lambda value: TypeValue(type_name(value)))],
    "dyn": [function("to_dyn", "A", "dyn", _identity)],
    "bool": [
        function("bool_to_bool", "bool", "bool", _identity),
        function("string_to_bool", "string", "bool", _to_bool),
    ],
    "bytes": [
        function("bytes_to_bytes", "bytes", "bytes", _identity),
        function("string_to_bytes", "string", "bytes", lambda text: text.encode()),
    ],
    "double": [
        function("double_to_double", "double", "double", _identity),
        function("int64_to_double", "int", "double", _to_double),
        function("string_to_double", "string", "double", _to_double),
        function("uint64_to_double", "uint", "double", _to_double),
    ],
    "duration": [
        function("duration_to_duration", "duration", "duration", _identity),
        function("int64_to_duration", "int", "duration", _to_duration),
        function("string_to_duration", "string", "duration", _to_duration),
    ],
    "int": [
        function("int64_to_int64", "int", "int", _identity),
        function("double_to_int64", "double", "int", _to_int),
        function("duration_to_int64", "duration", "int", _to_int),
        function("string_to_int64", "string", "int", _to_int),
        function("timestamp_to_int64", "timestamp", "int", _to_int),
        function("uint64_to_int64", "uint", "int", _to_int),
    ],
    "string": [
        function(f"{kind}_to_string", params, "string", to_string)
        for kind, params in (
            ("string", "string"),
            ("bool", "bool"),
            ("bytes", "bytes"),
            ("double", "double"),
            ("duration", "duration"),
            ("int64", "int"),
            ("timestamp", "timestamp"),
            ("uint64", "uint"),
        )
    ],
    "timestamp": [
        function("timestamp_to_timestamp", "timestamp", "timestamp", _identity),
        function("int64_to_timestamp", "int", "timestamp", _to_timestamp),
        function("string_to_timestamp", "string", "timestamp", _to_timestamp),
    ],
    "uint": [
        function("uint64_to_uint64", "uint", "uint", _identity),
        function("double_to_uint64", "double", "uint", _to_uint),
        function("int64_to_uint64", "int", "uint", _to_uint),
        function("string_to_uint64", "string", "uint", _to_uint),
    ],
    "contains": [method("contains_string", "string; string", "bool", lambda text, part: part in text)],
    "endsWith": [method("ends_with_string", "string; string", "bool", lambda text, end: text.endswith(end))],
    "startsWith": [
        method("starts_with_string", "string; string", "bool", lambda text, start: text.startswith(start))
    ],
    "matches": [
        function("matches", "string; string", "bool", matches),
        method("matches_string", "string; string", "bool", matches),
    ],
}
