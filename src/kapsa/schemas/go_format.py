"""Values as Go prints them: the verbs `%q`, `%v` and `%#v` of package fmt, and `json.Marshal`.

Messages of kube-apiserver contain values in these forms.
"""

from __future__ import annotations

import json
import math
from typing import Any

__all__ = ["GoStruct", "format_float", "format_syntax", "format_value", "marshal", "quote", "type_name"]

_TYPES = {
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
    dict: "map[string]interface {}",
    list: "[]interface {}",
}
_ESCAPES = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
_ESCAPES |= {'"': '\\"', "\\": "\\\\"}


class GoStruct(dict[str, Any]):
    """A value whose fields are printed in their own order, as Go prints a struct; plain maps are sorted."""


def type_name(value: Any) -> str:
    """Return the Go type that a decoded JSON value has, `<nil>` for null."""
    return _TYPES.get(type(value), "<nil>")


def format_value(value: Any) -> str:
    """Format a value with Go's `%v`: `map[a:1 b:[x y]]`."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return "true" if value else "false"
        case float():
            return format_float(value)
        case dict():
            return "map[" + " ".join(f"{key}:{format_value(value[key])}" for key in sorted(value)) + "]"
        case list():
            return "[" + " ".join(map(format_value, value)) + "]"
    return str(value)


def format_syntax(value: Any) -> str:
    """Format a value with Go's `%#v`: `map[string]interface {}{"a":1}`."""
    match value:
        case None:
            return "interface {}(nil)"
        case str():
            return quote(value)
        case dict():
            items = ", ".join(f"{quote(key)}:{format_syntax(value[key])}" for key in sorted(value))
            return f"{_TYPES[dict]}{{{items}}}"
        case list():
            return f"{_TYPES[list]}{{{', '.join(map(format_syntax, value))}}}"
    return format_value(value)


def format_float(value: float) -> str:
    """Format a float64 with Go's `%v`: the shortest digits, with an exponent from 1e+21 on or below 1e-4."""
    if math.isinf(value) or math.isnan(value):
        return "NaN" if math.isnan(value) else ("+Inf" if value > 0 else "-Inf")
    if value == int(value) and abs(value) < 1e21:
        return str(int(value))
    return repr(value)


def marshal(value: Any) -> str:
    """Encode a value as Go's `json.Marshal` does: compact, keys of maps sorted, `<`, `>` and `&` escaped."""
    text = json.dumps(_sorted(value), separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        keys = value if isinstance(value, GoStruct) else sorted(value)
        return {key: _sorted(value[key]) for key in keys}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def quote(text: str) -> str:
    """Quote a string with Go's `%q`: printable characters stay, the others are escaped."""
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
