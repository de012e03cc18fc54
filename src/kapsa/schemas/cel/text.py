"""CEL functions for strings: the strings extension, and the regular expressions of Kubernetes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from kapsa.schemas import go_regexp
from kapsa.schemas.go_format import format_float, quote

__all__ = ["FUNCTIONS"]

_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}
_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))


def _character(text: str, at: int) -> str:
    if not 0 <= at <= len(text):
        raise ValueError(f"index out of range: {at}")
    return text[at : at + 1]


def _index(text: str, part: str, start: int = 0) -> int:
    if start and not 0 <= start <= len(text):
        raise ValueError(f"index out of range: {start}")
    return text.find(part, start)


def _last_index(text: str, part: str, end: int | None = None) -> int:
    if end is None:
        return text.rfind(part)
    if not 0 <= end <= len(text):
        raise ValueError(f"index out of range: {end}")
    return text.rfind(part, 0, end + len(part))


def _join(items: Sequence[Any], separator: str = "") -> str:
    if not all(isinstance(item, str) for item in items):
        raise ValueError("no such overload")
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
        return characters if limit < 0 else [*characters[: limit - 1], "".join(characters[limit - 1 :])]
    return text.split(separator, -1 if limit < 0 else limit - 1)


def _substring(text: str, start: int, end: int | None = None) -> str:
    end = len(text) if end is None else end
    for bound in (start, end):
        if not 0 <= bound <= len(text):
            raise ValueError(f"index out of range: {bound}")
    if start > end:
        raise ValueError(f"invalid substring range. start: {start}, end: {end}")
    return text[start:end]


def _find(text: str, pattern: str) -> str:
    match = go_regexp.compile_pattern(pattern).search(text)
    return "" if match is None else match[0]


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    matches = [match[0] for match in go_regexp.compile_pattern(pattern).finditer(text)]
    return matches if limit < 0 else matches[:limit]


def _format(template: str, values: Sequence[Any]) -> str:
    """Format values with the verbs s, d, f, e, b, o, x and X; f and e take a precision."""
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
        end = at + 1
        while end < len(template) and (template[end].isdigit() or template[end] == "."):
            end += 1
        if end == len(template):
            raise ValueError("unexpected end of format string")
        if used == len(values):
            raise ValueError(f"index {used} out of range")
        out.append(_verb(template[end], template[at + 1 : end].lstrip("."), values[used]))
        used, at = used + 1, end + 1
    return "".join(out)


def _verb(verb: str, precision: str, value: Any) -> str:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if verb == "s":
        return _text(value)
    if verb == "d" and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if verb in "fe" and number:
        return f"{value:.{precision or 6}{verb}}"
    if verb in "xXob" and isinstance(value, int):
        return format(int(value), verb)
    if verb in "xX" and isinstance(value, (str, bytes)):
        shown = (value.encode() if isinstance(value, str) else value).hex()
        return shown.upper() if verb == "X" else shown
    raise ValueError(f"could not parse formatting clause: unrecognized formatting clause {quote(verb)}")


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, float):
        return format_float(value)
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return f"{format_float(value.total_seconds())}s"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_text(key)}: {_text(value[key])}" for key in sorted(value, key=str)) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_text(item) for item in value) + "]"
    return value.decode() if isinstance(value, bytes) else str(value)


FUNCTIONS: dict[str, list[tuple[str, str, str, Callable[..., Any]]]] = {
    "charAt": [(".", "string; int", "string", _character)],
    "format": [(".", "string; list<dyn>", "string", _format)],
    "indexOf": [(".", "string; string", "int", _index), (".", "string; string; int", "int", _index)],
    "lastIndexOf": [
        (".", "string; string", "int", _last_index),
        (".", "string; string; int", "int", _last_index),
    ],
    "join": [(".", "list<dyn>", "string", _join), (".", "list<dyn>; string", "string", _join)],
    "lowerAscii": [(".", "string", "string", lambda text: text.translate(_LOWER))],
    "upperAscii": [(".", "string", "string", lambda text: text.translate(_UPPER))],
    "replace": [
        (".", "string; string; string", "string", _replace),
        (".", "string; string; string; int", "string", _replace),
    ],
    "split": [
        (".", "string; string", "list<string>", _split),
        (".", "string; string; int", "list<string>", _split),
    ],
    "substring": [
        (".", "string; int", "string", _substring),
        (".", "string; int; int", "string", _substring),
    ],
    "trim": [(".", "string", "string", lambda text: text.strip(_SPACE))],
    "reverse": [(".", "string", "string", lambda text: text[::-1])],
    "strings.quote": [("", "string", "string", quote)],
    "find": [(".", "string; string", "string", _find)],
    "findAll": [
        (".", "string; string", "list<string>", _find_all),
        (".", "string; string; int", "list<string>", _find_all),
    ],
}
