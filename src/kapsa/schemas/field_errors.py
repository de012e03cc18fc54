"""Field errors in the words of k8s.io/apimachinery: what `Status.details.causes` and messages carry."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

NOT_FOUND = "FieldValueNotFound"
REQUIRED = "FieldValueRequired"
DUPLICATE = "FieldValueDuplicate"
INVALID = "FieldValueInvalid"
NOT_SUPPORTED = "FieldValueNotSupported"
FORBIDDEN = "FieldValueForbidden"
TOO_LONG = "FieldValueTooLong"
TOO_MANY = "FieldValueTooMany"
INTERNAL = "InternalError"
TYPE_INVALID = "FieldValueTypeInvalid"

_TITLES = {
    NOT_FOUND: "Not found",
    REQUIRED: "Required value",
    DUPLICATE: "Duplicate value",
    INVALID: "Invalid value",
    NOT_SUPPORTED: "Unsupported value",
    FORBIDDEN: "Forbidden",
    TOO_LONG: "Too long",
    TOO_MANY: "Too many",
    INTERNAL: "Internal error",
    TYPE_INVALID: "Invalid value",
}
OMITTED: Any = type("Omitted", (), {"__repr__": lambda self: "<omitted>"})()
"""Stands for a value that is too large to show."""
_WITHOUT_VALUE = frozenset({REQUIRED, FORBIDDEN, TOO_LONG, INTERNAL})


class FieldError(msgspec.Struct, frozen=True):
    """One thing wrong with one field. `str()` gives the line the real server prints."""

    reason: str
    field: str
    value: Any = ""
    detail: str = ""

    @property
    def message(self) -> str:
        """The error without its field: the `message` of a Status cause."""
        title = _TITLES[self.reason]
        if self.reason not in _WITHOUT_VALUE and self.value is not OMITTED:
            title = f"{title}: {render_value(self.value)}"
        return f"{title}: {self.detail}" if self.detail else title

    @property
    def cause(self) -> dict[str, str]:
        """The entry of `Status.details.causes`."""
        return {"reason": self.reason, "message": self.message, "field": self.field}

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def invalid(field: str, value: Any, detail: str) -> FieldError:
    return FieldError(INVALID, field, value, detail)


def required(field: str, detail: str = "") -> FieldError:
    return FieldError(REQUIRED, field, "", detail)


def forbidden(field: str, detail: str) -> FieldError:
    return FieldError(FORBIDDEN, field, "", detail)


def duplicate(field: str, value: Any) -> FieldError:
    return FieldError(DUPLICATE, field, value)


def not_supported(field: str, value: Any, supported: Iterable[str]) -> FieldError:
    names = [quote(name) for name in supported]
    return FieldError(NOT_SUPPORTED, field, value, "supported values: " + ", ".join(names) if names else "")


def too_long(field: str, maximum: int) -> FieldError:
    unit = "byte" if maximum == 1 else "bytes"
    return FieldError(TOO_LONG, field, "<value omitted>", f"may not be more than {maximum} {unit}")


def too_many(field: str, actual: int, maximum: int) -> FieldError:
    unit = "item" if maximum == 1 else "items"
    return FieldError(TOO_MANY, field, actual, f"must have at most {maximum} {unit}")


def aggregate(errors: Sequence[FieldError]) -> str:
    """The errors as one message: a single one bare, several in brackets, each text once."""
    texts = list(dict.fromkeys(map(str, errors)))
    return texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"


def render_value(value: Any) -> str:
    """A bad value as the real server prints it: scalars plain, strings quoted, the rest as JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, float):
        return go_float(value)
    if isinstance(value, int):
        return str(value)
    return _go_json(value)


class GoStruct(dict[str, Any]):
    """A value whose fields are printed in their own order, as Go prints a struct; plain maps are sorted."""


def _go_json(value: Any) -> str:
    """Go's json.Marshal: compact, keys of maps sorted, <, > and & escaped."""
    text = json.dumps(_sorted(value), separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        keys = value if isinstance(value, GoStruct) else sorted(value)
        return {key: _sorted(value[key]) for key in keys}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def go_float(value: float) -> str:
    """A float64 under Go's %v: shortest digits, exponent from 1e+21 or below 1e-4."""
    if math.isinf(value) or math.isnan(value):
        return "NaN" if math.isnan(value) else ("+Inf" if value > 0 else "-Inf")
    if value == int(value) and abs(value) < 1e21:
        return str(int(value))
    return repr(value)


_ESCAPES = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
_ESCAPES |= {'"': '\\"', "\\": "\\\\"}


def quote(text: str) -> str:
    """Go's %q: printable characters as they are, the others escaped."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(_quote_character(character) for character in text) + '"'


def _quote_character(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
