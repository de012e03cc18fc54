"""CEL functions for strings: the strings extension, and the regular expressions of Kubernetes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from kapsa.schemas import go_regexp
from kapsa.schemas.cel.library.operators import to_string
from kapsa.schemas.cel.library.signatures import Functions, function, method
from kapsa.schemas.cel.values import CelDuration, CelEvaluationError, Timestamp, TypeValue, type_name
from kapsa.schemas.go_format import quote

__all__ = ["FUNCTIONS", "FormatError", "each_clause"]

_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}
_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_QUOTED = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
_QUOTED |= {"\\": "\\\\", '"': '\\"'}
_SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_INTEGERS, _TEXTS = ("int", "uint"), ("string", "bytes")
_TIMES = ("google.protobuf.Timestamp", "google.protobuf.Duration")
CLAUSES: dict[str, tuple[tuple[str, ...], str]] = {
    "d": (_INTEGERS, "decimal clause can only be used on integers, was given {}"),
    "f": (("double",), "fixed-point clause can only be used on doubles, was given {}"),
    "e": (("double",), "scientific clause can only be used on doubles, was given {}"),
    "b": ((*_INTEGERS, "bool"), "only integers and bools can be formatted as binary, was given {}"),
    "x": (
        (*_INTEGERS, *_TEXTS),
        "only integers, byte buffers, and strings can be formatted as hex, was given {}",
    ),
    "o": (_INTEGERS, "octal clause can only be used on integers, was given {}"),
    "s": (
        (*_INTEGERS, *_TEXTS, "double", "bool", "list", "map", "null_type", "type", *_TIMES),
        (
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, "
            "and timestamps, was given {}"
        ),
    ),
}
"""The types that each clause of a format can show, and the error for the others."""
CLAUSES["X"] = CLAUSES["x"]


class FormatError(ValueError):
    """A format that does not fit its arguments."""


def _out_of_range(index: int) -> CelEvaluationError:
    return CelEvaluationError(f"index out of range: {index}")


def _character(text: str, at: int) -> str:
    if not 0 <= at <= len(text):
        raise _out_of_range(at)
    return text[at : at + 1]


def _index(text: str, part: str, start: int = 0) -> int:
    if not part:
        return start
    if start < 0:
        raise _out_of_range(start)
    return text.find(part, start)


def _last_index(text: str, part: str, end: int | None = None) -> int:
    if not part:
        return len(text) if end is None else end
    if end is None:
        return text.rfind(part)
    if end < 0:
        raise _out_of_range(end)
    return -1 if end >= len(text) else text.rfind(part, 0, end + len(part))


def _join(items: Sequence[Any], separator: str = "") -> str:
    for item in items:
        if not isinstance(item, str):
            raise CelEvaluationError(f"join: invalid input: {to_string(item)}")
    return separator.join(items)


def _replace(text: str, old: str, new: str, limit: int = -1) -> str:
    return text.replace(old, new, limit)


def _split(text: str, separator: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    if limit == 1:
        return [text]
    if not separator:
        characters = list(text)
        if limit < 0 or limit >= len(characters):
            return characters
        return [*characters[: limit - 1], "".join(characters[limit - 1 :])]
    return text.split(separator, -1 if limit < 0 else limit - 1)


def _substring(text: str, start: int, end: int | None = None) -> str:
    end = len(text) if end is None and start <= len(text) else end
    if end is None:
        raise _out_of_range(start)
    if start > end:
        raise CelEvaluationError(f"invalid substring range. start: {start}, end: {end}")
    for bound in (start, end):
        if not 0 <= bound <= len(text):
            raise _out_of_range(bound)
    return text[start:end]


def _pattern(pattern: str) -> Any:
    try:
        return go_regexp.compile_pattern(pattern)
    except ValueError as error:
        raise CelEvaluationError(f"Illegal regex: {error}") from None


def _find(text: str, pattern: str) -> str:
    match = _pattern(pattern).search(text)
    return "" if match is None else str(match[0])


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    matches = [match[0] for match in _pattern(pattern).finditer(text)]
    return matches if limit < 0 else matches[:limit]


def _quote(text: str) -> str:
    return '"' + "".join(_QUOTED.get(character, character) for character in text) + '"'


def each_clause(template: str, count: int, show: Callable[[int, str, int | None], str]) -> str:
    """Replace the clauses of a format with what `show` returns for index, verb and precision.

    Raises FormatError if the format is invalid or has more clauses than there are arguments.
    """
    out: list[str] = []
    used, at = 0, 0
    while at < len(template):
        if template[at] != "%":
            out.append(template[at])
            at += 1
            continue
        if template.startswith("%%", at):
            out.append("%")
            at += 2
            continue
        if used >= count:
            raise FormatError(f"index {used} out of range")
        if at + 1 == len(template):
            raise FormatError("unexpected end of string")
        verb, precision, at = _clause(template, at + 1)
        try:
            out.append(show(used, verb, precision))
        except FormatError as error:
            error.args = (f"error during formatting: {error}",)
            raise
        used += 1
    return "".join(out)


def _clause(template: str, at: int) -> tuple[str, int | None, int]:
    head = "could not parse formatting clause: "
    precision = None
    if template[at] == ".":
        end = at + 1
        while end < len(template) and template[end] in "0123456789":
            end += 1
        if end == len(template):
            raise FormatError(
                f"{head}error while parsing precision: could not find end of precision specifier"
            )
        if end == at + 1:
            raise FormatError(
                f"{head}error while parsing precision: error while converting precision to integer: "
                'strconv.Atoi: parsing "": invalid syntax'
            )
        precision, at = int(template[at + 1 : end]), end
    verb = template[at]
    if verb not in CLAUSES:
        raise FormatError(f'{head}unrecognized formatting clause "{verb}"')
    return verb, precision, at + 1


def _format(template: str, values: Sequence[Any]) -> str:
    def show(index: int, verb: str, precision: int | None) -> str:
        return _show(verb, 6 if precision is None else precision, values[index])

    try:
        return each_clause(template, len(values), show)
    except FormatError as error:
        raise CelEvaluationError(str(error)) from None


def _show(verb: str, precision: int, value: Any) -> str:
    kinds, message = CLAUSES[verb]
    if verb in "fe" and value in ("NaN", "Infinity", "-Infinity"):
        value = float(value)
    if type_name(value) not in kinds:
        raise FormatError(message.format(type_name(value)))
    if verb == "s":
        return _text(value)
    if verb == "f":
        return _special_number(value) or f"{value:,.{precision}f}"
    if verb == "e":
        return _special_number(value) or _scientific(value)
    if verb in "xX" and isinstance(value, (str, bytes)):
        shown = (value.encode() if isinstance(value, str) else value).hex()
        return shown.upper() if verb == "X" else shown
    return format(int(value), verb)


def _special_number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "" if not math.isinf(value) else ("∞" if value > 0 else "-∞")


def _scientific(value: float) -> str:
    # cel-go passes the precision as a width, so there are always six digits.
    mantissa, _, exponent = f"{value:.6e}".partition("e")
    sign = "-" if exponent[0] == "-" else ""
    return f"{mantissa}×10{(sign + exponent[1:]).translate(_SUPERSCRIPTS)}"


def _text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, TypeValue):
        return value.name
    if isinstance(value, dict):
        pairs = sorted((_literal(key), _literal(item)) for key, item in value.items())
        return "{" + ", ".join(f"{key}:{item}" for key, item in pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_literal, value)) + "]"
    return to_string(value)


def _literal(value: Any) -> str:
    """Return a value inside of a list or map, as a literal of CEL."""
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, bytes):
        return f"b{quote(value.decode(errors='replace'))}"
    if isinstance(value, (Timestamp, CelDuration)):
        kind = "timestamp" if isinstance(value, Timestamp) else "duration"
        return f'{kind}("{value}")'
    if isinstance(value, float):
        shown = _special_number(value)
        return quote(shown) if shown else f"{value:.6f}"
    if type_name(value) not in CLAUSES["s"][0]:
        raise FormatError(f"no formatting function for {type_name(value)}")
    return _text(value)


_S = "string"

FUNCTIONS: Functions = {
    "charAt": [method("string_char_at_int", "string; int", _S, _character)],
    "indexOf": [
        method("string_index_of_string", "string; string", "int", _index),
        method("string_index_of_string_int", "string; string; int", "int", _index),
    ],
    "lastIndexOf": [
        method("string_last_index_of_string", "string; string", "int", _last_index),
        method("string_last_index_of_string_int", "string; string; int", "int", _last_index),
    ],
    "lowerAscii": [method("string_lower_ascii", _S, _S, lambda text: text.translate(_LOWER))],
    "upperAscii": [method("string_upper_ascii", _S, _S, lambda text: text.translate(_UPPER))],
    "replace": [
        method("string_replace_string_string", "string; string; string", _S, _replace),
        method("string_replace_string_string_int", "string; string; string; int", _S, _replace),
    ],
    "split": [
        method("string_split_string", "string; string", "list(string)", _split),
        method("string_split_string_int", "string; string; int", "list(string)", _split),
    ],
    "substring": [
        method("string_substring_int", "string; int", _S, _substring),
        method("string_substring_int_int", "string; int; int", _S, _substring),
    ],
    "trim": [method("string_trim", _S, _S, lambda text: text.strip(_SPACE))],
    "format": [method("string_format", "string; list(dyn)", _S, _format)],
    "strings.quote": [function("strings_quote", _S, _S, _quote)],
    "join": [
        method("list_join", "list(string)", _S, _join),
        method("list_join_string", "list(string); string", _S, _join),
    ],
    "find": [method("string_find_string", "string; string", _S, _find)],
    "findAll": [
        method("string_find_all_string", "string; string", "list(string)", _find_all),
        method("string_find_all_string_int", "string; string; int", "list(string)", _find_all),
    ],
}
