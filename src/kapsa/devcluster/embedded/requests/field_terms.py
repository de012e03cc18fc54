"""The terms of a fieldSelector, before it is known which fields a kind has."""

from __future__ import annotations

from kapsa.devcluster.embedded.kinds.names import path_segment

__all__ = ["FieldTerm", "SelectorError", "parse_terms", "required_name"]

FieldTerm = tuple[str, bool, str]
"""A field, True for equality or False for inequality, and the value."""

_NAME = "metadata.name"


class SelectorError(ValueError):
    """A selector that cannot be parsed. The message is kube-apiserver's."""


def parse_terms(text: str) -> list[FieldTerm]:
    """Return the terms of a selector, sorted. Raises SelectorError."""
    return [_term(part, text) for part in sorted(_split(text)) if part]


def required_name(terms: list[FieldTerm]) -> str:
    """Return the name that the terms require; empty if they require none, or none that an object can have."""
    name = next((value for field, equal, value in terms if field == _NAME and equal), "")
    return "" if path_segment(name) else name


def _split(text: str) -> list[str]:
    """Split a selector at its commas, except for escaped ones."""
    terms, current, escaped = [], "", False
    for character in text:
        if character == "," and not escaped:
            terms.append(current)
            current = ""
            continue
        escaped = character == "\\" and not escaped
        current += character
    return [*terms, current]


def _term(part: str, text: str) -> FieldTerm:
    for index in range(len(part)):
        for operator in ("!=", "==", "="):
            if part.startswith(operator, index):
                return part[:index], operator != "!=", _unescape(part[index + len(operator) :])
    raise SelectorError(f"invalid selector: '{text}'; can't understand '{part}'")


def _unescape(value: str) -> str:
    result, escaped = "", False
    for character in value:
        if escaped:
            if character not in "\\,=":
                raise SelectorError(f"invalid field selector: invalid escape sequence: \\{character}")
            result, escaped = result + character, False
        elif character == "\\":
            escaped = True
        elif character in ",=":
            raise SelectorError(f"invalid field selector: unescaped character in value: {ord(character)}")
        else:
            result += character
    if escaped:
        raise SelectorError("invalid field selector: invalid escape sequence: \\")
    return result
