"""The errors of Go's encoding/json for text that is not JSON."""

from __future__ import annotations

from typing import Any

__all__ = ["TOO_DEEP", "json_type", "syntax_error"]

_SPACE = " \t\r\n"
_DIGITS = frozenset("0123456789")
_NUMBER_STARTS = _DIGITS | {"-"}
_HEX = "0123456789abcdefABCDEF"
_ESCAPED = '"\\/bfnrt'
MAXIMUM_DEPTH = 10_000
TOO_DEEP = "exceeded max depth: the embedded devcluster reads a few hundred levels, the real server 10000"
"""The error for JSON or YAML that Go reads and Python does not."""


class _SyntaxError(Exception):
    """The first character that is invalid."""


def syntax_error(data: bytes) -> str:
    """Return Go's message for malformed JSON; empty for valid JSON."""
    # Go scans bytes: outside strings, the only place where characters matter here, each byte is a character.
    text = data.decode("latin-1")
    try:
        end = _Scanner(text).document()
    except _SyntaxError as problem:
        return str(problem)
    rest = text[end:].lstrip(_SPACE)
    return f"invalid character {quote_character(rest[0])} after top-level value" if rest else ""


def quote_character(character: str) -> str:
    """Return a character as Go's errors show it."""
    if character == "'":
        return "'\\''"
    if character == '"':
        return "'\"'"
    if character.isprintable():
        return f"'{character}'"
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\v": "\\v"}
    code = ord(character)
    shown = f"\\x{code:02x}" if code < 128 else f"\\u{code:04x}"
    return f"'{named.get(character, shown)}'"


def json_type(value: Any) -> str:
    """Return the type of a value as Go's JSON errors name it."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int | float):
        return "number"
    if value is None:
        return "null"
    return "array" if isinstance(value, list) else "object"


class _Scanner:
    """A scanner of a document up to the first invalid character."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def document(self) -> int:
        # Open containers are kept in a list: recursion would limit the depth of a document.
        open_containers: list[str] = []
        self._value_start(open_containers)
        while open_containers:
            self._after_value(open_containers)
        return self._at

    def _peek(self) -> str:
        while self._at < len(self._text) and self._text[self._at] in _SPACE:
            self._at += 1
        if self._at >= len(self._text):
            raise _SyntaxError("unexpected end of JSON input")
        return self._text[self._at]

    def _fail(self, context: str) -> _SyntaxError:
        return _SyntaxError(f"invalid character {quote_character(self._text[self._at])} {context}")

    def _value_start(self, containers: list[str], context: str = "looking for beginning of value") -> None:
        """Read a value, or the start of a container and its first element."""
        while True:
            character = self._peek()
            if character == "{":
                self._push(containers, "{")
                if self._peek() == "}":
                    self._at += 1
                    containers.pop()
                    return
                self._key("looking for beginning of object key string")
                context = "looking for beginning of value"
            elif character == "[":
                self._push(containers, "[")
                if self._peek() == "]":
                    self._at += 1
                    containers.pop()
                    return
                context = "looking for beginning of value"
            else:
                self._scalar(character, context)
                return

    def _push(self, containers: list[str], kind: str) -> None:
        containers.append(kind)
        if len(containers) > MAXIMUM_DEPTH:
            raise self._fail("exceeded max depth")
        self._at += 1

    def _after_value(self, containers: list[str]) -> None:
        """Read what follows a value: the next one, or the end of its container."""
        character = self._peek()
        inside = containers[-1]
        closing = "}" if inside == "{" else "]"
        if character == closing:
            self._at += 1
            containers.pop()
            return
        if character != ",":
            raise self._fail("after object key:value pair" if inside == "{" else "after array element")
        self._at += 1
        if inside == "{":
            self._key("looking for beginning of object key string")
        self._value_start(containers)

    def _key(self, context: str) -> None:
        if self._peek() != '"':
            raise self._fail(context)
        self._string()
        if self._peek() != ":":
            raise self._fail("after object key")
        self._at += 1

    def _scalar(self, character: str, context: str) -> None:
        if character == '"':
            self._string()
        elif character in _NUMBER_STARTS:
            self._number()
        elif character in "tfn":
            self._literal({"t": "true", "f": "false", "n": "null"}[character])
        else:
            raise self._fail(context)

    def _next(self) -> str:
        if self._at >= len(self._text):
            raise _SyntaxError("unexpected end of JSON input")
        return self._text[self._at]

    def _string(self) -> None:
        self._at += 1
        while (character := self._next()) != '"':
            if character == "\\":
                self._at += 1
                self._escape()
            elif character < " ":
                raise self._fail("in string literal")
            else:
                self._at += 1
        self._at += 1

    def _escape(self) -> None:
        character = self._next()
        if character == "u":
            for _ in range(4):
                self._at += 1
                if self._next() not in _HEX:
                    raise self._fail("in \\u hexadecimal character escape")
        elif character not in _ESCAPED:
            raise self._fail("in string escape code")
        self._at += 1

    def _literal(self, word: str) -> None:
        self._at += 1
        for expected in word[1:]:
            if self._next() != expected:
                raise self._fail(f"in literal {word} (expecting {quote_character(expected)})")
            self._at += 1

    def _number(self) -> None:
        if self._next() == "-":
            self._at += 1
            if self._next() not in _DIGITS:
                raise self._fail("in numeric literal")
        if self._next() == "0":
            self._at += 1
        else:
            self._digits()
        if self._here() == ".":
            self._at += 1
            if self._next() not in _DIGITS:
                raise self._fail("after decimal point in numeric literal")
            self._digits()
        if self._here() in ("e", "E"):
            self._at += 1
            if self._next() in "+-":
                self._at += 1
            if self._next() not in _DIGITS:
                raise self._fail("in exponent of numeric literal")
            self._digits()

    def _here(self) -> str:
        return self._text[self._at] if self._at < len(self._text) else ""

    def _digits(self) -> None:
        while self._here() in _DIGITS:
            self._at += 1
