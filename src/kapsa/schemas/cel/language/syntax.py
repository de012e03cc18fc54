"""The syntax of CEL: tokens, the nodes of a parsed expression, and errors that point at their position."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from kapsa.schemas.cel.language.types import DYN, Type

__all__ = [
    "RESERVED",
    "CallNode",
    "CelCompileError",
    "Comprehension",
    "Identifier",
    "ListLiteral",
    "Literal",
    "MapLiteral",
    "Message",
    "MessageField",
    "Node",
    "Problems",
    "Select",
    "Token",
    "UInt",
    "tokenize",
]

RESERVED = frozenset(
    [
        "as",
        "break",
        "const",
        "continue",
        "else",
        "false",
        "for",
        "function",
        "if",
        "import",
        "in",
        "let",
        "loop",
        "package",
        "namespace",
        "null",
        "return",
        "true",
        "var",
        "void",
        "while",
    ]
)
_SIMPLE_ESCAPES = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    '"': '"',
    "'": "'",
    "\\": "\\",
    "?": "?",
    "`": "`",
}
_ESCAPE = r"\\(?:[abfnrtv\"'\\?`]|[0-3][0-7][0-7]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"
_STRING = (
    rf"'''(?:{_ESCAPE}|[^\\])*?'''|\"\"\"(?:{_ESCAPE}|[^\\])*?\"\"\""
    rf"|'(?:{_ESCAPE}|[^\\'\n\r])*'|\"(?:{_ESCAPE}|[^\\\"\n\r])*\""
)
_RAW_STRING = r"[rR](?:'''[\s\S]*?'''|\"\"\"[\s\S]*?\"\"\"|'[^'\n\r]*'|\"[^\"\n\r]*\")"
_TOKENS = re.compile(
    rf"""(?P<space>[\t\ \r\n\f]+|//[^\n]*)
    |(?P<BYTES>[bB](?:{_RAW_STRING}|{_STRING}))
    |(?P<STRING>{_RAW_STRING}|{_STRING})
    |(?P<NUM_FLOAT>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
    |(?P<NUM_UINT>(?:0x[0-9a-fA-F]+|[0-9]+)[uU])
    |(?P<NUM_INT>0x[0-9a-fA-F]+|[0-9]+)
    |(?P<IDENTIFIER>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<ESC_IDENTIFIER>`[A-Za-z0-9_.\-/\ ]+`)
    |(?P<operator>==|!=|<=|>=|&&|\|\||[<>\[\]{{}}().,\-!?:+*/%])""",
    re.VERBOSE,
)
_PARTIAL_ESCAPE = r"\\(?:[0-3][0-7]?|[xX][0-9a-fA-F]?|u[0-9a-fA-F]{0,3}|U[0-9a-fA-F]{0,7})?"
_BEGINNING = re.compile(
    rf"""[=&|]|[bB]?[rR]'[^'\n\r]*|[bB]?[rR]"[^"\n\r]*"""
    rf"""|[bB]?'(?:{_ESCAPE}|[^\\'\n\r])*(?:{_PARTIAL_ESCAPE})?"""
    rf"""|[bB]?"(?:{_ESCAPE}|[^\\"\n\r])*(?:{_PARTIAL_ESCAPE})?"""
)
_ESCAPES = re.compile(_ESCAPE)
_KEYWORDS = frozenset({"in", "true", "false", "null"})


class CelCompileError(ValueError):
    """An expression that does not compile; the text points at the position, as kube-apiserver's does."""


class UInt(int):
    """An unsigned integer; `int` is CEL's int."""

    __slots__ = ()


class Problems:
    """The errors of an expression, in the words and the layout of cel-go."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._recorded: list[tuple[int, int, str]] = []

    def __bool__(self) -> bool:
        return bool(self._recorded)

    def report(self, offset: int, message: str) -> None:
        """Record an error at a character of the source."""
        line = self._source.count("\n", 0, offset) + 1
        column = offset - (self._source.rfind("\n", 0, offset) + 1)
        self._recorded.append((line, column, message))

    def raise_if_any(self) -> None:
        """Raise CelCompileError if an error was recorded."""
        if self._recorded:
            ordered = sorted(self._recorded[:100], key=lambda entry: entry[:2])
            raise CelCompileError("\n".join(map(self._show, ordered)))

    def _show(self, problem: tuple[int, int, str]) -> str:
        line, column, message = problem
        snippet = self._source.split("\n")[line - 1].replace("\t", " ")
        dots = "".join("." if character.isascii() else "\uff0e" for character in snippet[:column])
        wide = not snippet[column : column + 1].isascii()
        caret = "\uff3e" if wide else "^"
        return f"ERROR: <input>:{line}:{column + 1}: {message}\n | {snippet}\n | {dots}{caret}"


class Token(NamedTuple):
    """A token: its kind (`IDENTIFIER`, `STRING`, ..., an operator as itself, `<EOF>`), text and position."""

    kind: str
    text: str
    offset: int


def tokenize(source: str, problems: Problems) -> list[Token]:
    """Return the tokens of an expression, and record an error for each character that starts none."""
    tokens: list[Token] = []
    at = 0
    while at < len(source):
        match = _TOKENS.match(source, at)
        if match is None:
            end = _failure(source, at)
            shown = source[at:end].replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
            problems.report(at, f"Syntax error: token recognition error at: '{shown}'")
            at = end
            continue
        text, kind = match[0], match.lastgroup or ""
        if kind == "operator" or (kind == "IDENTIFIER" and text in _KEYWORDS):
            tokens.append(Token(text, text, at))
        elif kind != "space":
            tokens.append(Token(kind, text, at))
        at = match.end()
    tokens.append(Token("<EOF>", "<EOF>", len(source)))
    return tokens


def _failure(source: str, at: int) -> int:
    """Return the end of the text that starts like a token and is none, with the character that does not fit."""
    match = _BEGINNING.match(source, at)
    return min((at if match is None else match.end()) + 1, len(source))


def unquote(text: str) -> str:
    """Return the value of a string literal."""
    raw = text[0] in "rR"
    text = text[1:] if raw else text
    quotes = 3 if text[:3] in ('"""', "'''") and len(text) >= 6 else 1
    text = text[quotes:-quotes].replace("\r\n", "\n").replace("\r", "\n")
    return text if raw else _ESCAPES.sub(lambda match: _unescape(match[0]), text)


def unquote_bytes(text: str) -> bytes:
    """Return the value of a bytes literal: escapes of two hex or three octal digits are single bytes.

    Raises ValueError if it has escapes of code points.
    """
    text = text[1:]
    if text[0] in "rR":
        return unquote(text).encode()
    quotes = 3 if text[:3] in ('"""', "'''") and len(text) >= 6 else 1
    text = text[quotes:-quotes]
    parts: list[bytes] = []
    at = 0
    for match in _ESCAPES.finditer(text):
        parts += [text[at : match.start()].encode(), _unescape_bytes(match[0])]
        at = match.end()
    return b"".join([*parts, text[at:].encode()])


def _unescape(escape: str) -> str:
    simple = _SIMPLE_ESCAPES.get(escape[1])
    if simple is not None and len(escape) == 2:
        return simple
    return chr(int(escape[2:], 16) if escape[1] in "xXuU" else int(escape[1:], 8))


def _unescape_bytes(escape: str) -> bytes:
    if escape[1] in "uU":
        raise ValueError("unable to unescape string")
    return bytes([ord(_unescape(escape))])


class Node:
    """A node of a parsed expression. The checker fills in its type."""

    __slots__ = ("offset", "type")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        """The position that errors about this node point at."""
        self.type: Type = DYN

    def children(self) -> list[Node]:
        """Return the nodes directly below this one, in the order of evaluation."""
        return []


class Literal(Node):
    """A constant."""

    __slots__ = ("value",)

    def __init__(self, offset: int, value: Any) -> None:
        super().__init__(offset)
        self.value = value


class Identifier(Node):
    """A variable, or the name of a type."""

    __slots__ = ("is_type", "name")

    def __init__(self, offset: int, name: str) -> None:
        super().__init__(offset)
        self.name = name
        self.is_type = False
        """Set by the checker: True if the name stands for a type."""


class Select(Node):
    """`operand.field`, or `has(operand.field)` if `test` is true."""

    __slots__ = ("field", "is_type", "operand", "test", "variable")

    def __init__(self, offset: int, operand: Node, field: str, *, test: bool = False) -> None:
        super().__init__(offset)
        self.operand = operand
        self.field = field
        self.test = test
        self.is_type = False
        """Set by the checker: True if the whole chain is the name of a type, such as `net.IP`."""
        self.variable = ""
        """Set by the checker: the name of the variable that the whole chain is, such as `authorizer.requestResource`."""

    def children(self) -> list[Node]:
        return [self.operand]


class CallNode(Node):
    """A call of a function, a method or an operator (`_+_`)."""

    __slots__ = ("args", "function", "overloads", "target")

    def __init__(self, offset: int, function: str, args: list[Node], target: Node | None = None) -> None:
        super().__init__(offset)
        self.function = function
        self.args = args
        self.target = target
        self.overloads: list[Any] = []
        """Set by the checker: the declarations that fit the arguments."""

    def children(self) -> list[Node]:
        return [*([] if self.target is None else [self.target]), *self.args]


class ListLiteral(Node):
    """`[a, ?b]`; `optional` are the indexes of the elements that are optionals."""

    __slots__ = ("elements", "optional")

    def __init__(self, offset: int, elements: list[Node], optional: frozenset[int] = frozenset()) -> None:
        super().__init__(offset)
        self.elements = elements
        self.optional = optional

    def children(self) -> list[Node]:
        return list(self.elements)


class MapLiteral(Node):
    """`{a: b}`; an entry is its key, its value, and whether the value is an optional."""

    __slots__ = ("entries",)

    def __init__(self, offset: int, entries: list[tuple[Node, Node, bool]]) -> None:
        super().__init__(offset)
        self.entries = entries

    def children(self) -> list[Node]:
        return [node for key, value, _ in self.entries for node in (key, value)]


class MessageField(NamedTuple):
    """A field of a message: its name, its value, and whether the value is an optional."""

    offset: int
    name: str
    value: Node
    optional: bool


class Message(Node):
    """`Name{field: value, ?other: optional}`. Only the mutations of policies have types that can be constructed."""

    __slots__ = ("fields", "name")

    def __init__(self, offset: int, name: str, fields: list[MessageField]) -> None:
        super().__init__(offset)
        self.name = name
        self.fields = fields

    def children(self) -> list[Node]:
        return [field.value for field in self.fields]


class Comprehension(Node):
    """A fold over a list or a map, to which macros expand."""

    __slots__ = ("accumulator", "condition", "initial", "iterated", "result", "step", "variable", "variable2")

    def __init__(
        self,
        offset: int,
        iterated: Node,
        variable: str,
        accumulator: str,
        initial: Node,
        condition: Node,
        step: Node,
        result: Node,
        variable2: str = "",
    ) -> None:
        super().__init__(offset)
        self.iterated = iterated
        self.variable = variable
        self.variable2 = variable2
        self.accumulator = accumulator
        self.initial = initial
        self.condition = condition
        self.step = step
        self.result = result

    @property
    def is_binding(self) -> bool:
        """True if this only gives a name to a value, as `sortBy` and `optMap` do."""
        empty = isinstance(self.iterated, ListLiteral) and not self.iterated.elements
        never = isinstance(self.condition, Literal) and self.condition.value is False
        return empty and never and self.accumulator != "__result__"

    def children(self) -> list[Node]:
        return [self.iterated, self.initial, self.condition, self.step, self.result]
