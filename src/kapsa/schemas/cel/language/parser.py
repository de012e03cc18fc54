"""A parser of CEL expressions. Macros are expanded on the way."""

from __future__ import annotations

from kapsa.schemas.cel.language.macros import MACROS, MacroError
from kapsa.schemas.cel.language.syntax import (
    RESERVED,
    CallNode,
    CelCompileError,
    Identifier,
    ListLiteral,
    Literal,
    MapLiteral,
    Message,
    MessageField,
    Node,
    Problems,
    Select,
    Token,
    UInt,
    tokenize,
    unquote,
    unquote_bytes,
)

__all__ = ["TOO_DEEP", "parse"]

MAX_DEPTH = 250
TOO_DEEP = f"ERROR: <input>:-1:0: expression recursion limit exceeded: {MAX_DEPTH}"
"""The error of an expression that is nested too deeply. Python's stack may be at its end before the limit."""
_MAX_LENGTH = 100_000
_RELATIONS = frozenset({"<", "<=", ">=", ">", "==", "!=", "in"})
_PRODUCTS = frozenset({"*", "/", "%"})
_SUMS = frozenset({"+", "-"})
_ORDER = [
    "[",
    "]",
    "{",
    "}",
    "(",
    ")",
    ".",
    ",",
    "-",
    "!",
    "?",
    "true",
    "false",
    "null",
    "NUM_FLOAT",
    "NUM_INT",
    "NUM_UINT",
    "STRING",
    "BYTES",
    "IDENTIFIER",
]
_STARTS = frozenset(
    [
        "[",
        "{",
        "(",
        ".",
        "-",
        "!",
        "true",
        "false",
        "null",
        "NUM_FLOAT",
        "NUM_INT",
        "NUM_UINT",
        "STRING",
        "BYTES",
        "IDENTIFIER",
    ]
)
_CONSTANTS = {"true": True, "false": False, "null": None}
_MAX_INT = 1 << 63


class _SyntaxStopError(Exception):
    """The parser cannot go on after a syntax error, which is recorded."""


def parse(source: str) -> Node:
    """Return the tree of an expression.

    Raises CelCompileError, in the words of cel-go, if its syntax is invalid.
    """
    problems = Problems(source)
    if len(source) > _MAX_LENGTH:
        text = f"expression code point size exceeds limit: size: {len(source)}, limit {_MAX_LENGTH}"
        problems.report(0, text)
        problems.raise_if_any()
    parser = _Parser(tokenize(source, problems), problems)
    node = parser.whole()
    problems.raise_if_any()
    return node


class _Parser:
    def __init__(self, tokens: list[Token], problems: Problems) -> None:
        self._tokens = tokens
        self._problems = problems
        self._at = 0
        self._depth = 0

    def whole(self) -> Node:
        try:
            node = self._expression()
            self._expect("<EOF>", "<EOF>")
        except _SyntaxStopError:
            return Literal(0, None)
        return node

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _accept(self, kind: str) -> Token | None:
        return self._take() if self._next.kind == kind else None

    def _expect(self, kind: str, expected: str = "") -> Token:
        """Take a token of a kind. One that is too much is skipped, a missing parenthesis or bracket is added."""
        token = self._next
        if token.kind == kind:
            return self._take() if kind != "<EOF>" else token
        expected = expected or f"'{kind}'"
        if self._skip_extraneous(frozenset({kind}), expected):
            return self._take() if kind != "<EOF>" else self._next
        if token.kind == "<EOF>" and kind in (")", "]", "}"):
            self._report(f"missing {expected} at '<EOF>'")
            return Token(kind, kind, token.offset)
        self._mismatched(expected)
        raise AssertionError("unreachable")

    def _report(self, message: str) -> None:
        self._problems.report(self._next.offset, f"Syntax error: {message}")

    def _skip_extraneous(self, allowed: frozenset[str], expected: str) -> bool:
        """Skip a token that is too much: the next one is what was expected."""
        if self._next.kind == "<EOF>" or self._tokens[self._at + 1].kind not in allowed:
            return False
        self._report(f"extraneous input '{_shown(self._next)}' expecting {expected}")
        self._at += 1
        return True

    def _mismatched(self, expected: str) -> None:
        self._report(f"mismatched input '{_shown(self._next)}' expecting {expected}")
        raise _SyntaxStopError

    def _start(self, *more: str) -> None:
        """Check that an expression, or one of some more tokens, comes next."""
        allowed = _STARTS | frozenset(more)
        if self._next.kind in allowed:
            return
        expected = "{" + ", ".join(_label(kind) for kind in _ORDER if kind in allowed) + "}"
        if not self._skip_extraneous(allowed, expected):
            self._mismatched(expected)

    def _expression(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise CelCompileError(TOO_DEEP)
        self._start()
        condition = self._chain("||")
        if (question := self._accept("?")) is not None:
            yes = self._chain("||")
            self._expect(":")
            no = self._expression()
            condition = CallNode(question.offset, "_?_:_", [condition, yes, no])
        self._depth -= 1
        return condition

    def _chain(self, operator: str) -> Node:
        """Parse terms joined by `||` or `&&`, as a balanced tree."""
        terms = [self._chain("&&") if operator == "||" else self._relation()]
        operators: list[int] = []
        while (token := self._accept(operator)) is not None:
            operators.append(token.offset)
            terms.append(self._chain("&&") if operator == "||" else self._relation())
        return _balanced(f"_{operator}_", terms, operators, 0, len(operators) - 1)

    def _relation(self) -> Node:
        left = self._sum()
        while self._next.kind in _RELATIONS:
            token = self._take()
            function = "@in" if token.kind == "in" else f"_{token.kind}_"
            left = CallNode(token.offset, function, [left, self._sum()])
        return left

    def _sum(self) -> Node:
        left = self._product()
        while self._next.kind in _SUMS:
            token = self._take()
            left = CallNode(token.offset, f"_{token.kind}_", [left, self._product()])
        return left

    def _product(self) -> Node:
        left = self._unary()
        while self._next.kind in _PRODUCTS:
            token = self._take()
            left = CallNode(token.offset, f"_{token.kind}_", [left, self._unary()])
        return left

    def _unary(self) -> Node:
        first = self._next
        if first.kind not in ("!", "-"):
            return self._member(self._primary())
        if first.kind == "-" and self._tokens[self._at + 1].kind in ("NUM_INT", "NUM_FLOAT"):
            self._take()
            return self._member(self._number(first))
        count = 0
        while self._accept(first.kind) is not None:
            count += 1
        operand = self._member(self._primary())
        if count % 2 == 0:
            return operand
        return CallNode(first.offset, "!_" if first.kind == "!" else "-_", [operand])

    def _member(self, node: Node) -> Node:
        while True:
            if (dot := self._accept(".")) is not None:
                node = self._select(node, dot)
            elif (bracket := self._accept("[")) is not None:
                self._start("?")
                optional = self._accept("?") is not None
                index = self._expression()
                self._expect("]")
                node = CallNode(bracket.offset, "_[?_]" if optional else "_[_]", [node, index])
            else:
                return node

    def _select(self, operand: Node, dot: Token) -> Node:
        if self._accept("?") is not None:
            name = self._optional_field_name()
            field = Literal(name.offset, name.text)
            return CallNode(dot.offset, "_?._", [operand, field])
        name = self._field_name()
        if name.kind == "IDENTIFIER" and (opening := self._accept("(")) is not None:
            return self._call(opening.offset, name.text, self._arguments(), operand)
        return Select(dot.offset, operand, name.text)

    def _field_name(self) -> Token:
        token = self._next
        if token.kind in ("true", "false", "null"):
            self._mismatched("IDENTIFIER")
        if token.kind not in ("IDENTIFIER", "ESC_IDENTIFIER"):
            ahead = "" if token.kind == "<EOF>" else _shown(token)
            self._report(f"no viable alternative at input '.{ahead}'")
            if token.kind == "<EOF>":
                raise _SyntaxStopError
            return Token("IDENTIFIER", "", token.offset)
        if token.kind == "ESC_IDENTIFIER":
            self._problems.report(token.offset, "unsupported syntax: '`'")
        return self._take()

    def _optional_field_name(self) -> Token:
        if self._next.kind not in ("IDENTIFIER", "ESC_IDENTIFIER"):
            self._report(f"mismatched input '{_shown(self._next)}' expecting {{IDENTIFIER, ESC_IDENTIFIER}}")
            self._problems.report(self._next.offset, "unsupported ident kind")
            raise _SyntaxStopError
        return self._field_name()

    def _arguments(self) -> list[Node]:
        args: list[Node] = []
        self._start(")")
        if self._accept(")") is not None:
            return args
        args.append(self._expression())
        while self._accept(",") is not None:
            args.append(self._expression())
        self._expect(")")
        return args

    def _call(self, offset: int, function: str, args: list[Node], target: Node | None) -> Node:
        expand = MACROS.get((function, len(args), target is not None))
        if expand is None:
            return CallNode(offset, function, args, target)
        try:
            return expand(offset, target, args)
        except MacroError as error:
            self._problems.report(error.offset, str(error))
            return Literal(offset, None)

    def _primary(self) -> Node:
        token = self._next
        match token.kind:
            case "NUM_INT" | "NUM_UINT" | "NUM_FLOAT":
                return self._number(None)
            case "STRING" | "BYTES":
                return self._text()
            case "true" | "false" | "null":
                self._take()
                return Literal(token.offset, _CONSTANTS[token.kind])
            case "(":
                self._take()
                node = self._expression()
                self._expect(")")
                return node
            case "[":
                return self._list()
            case "{":
                return self._map()
            case "." | "IDENTIFIER":
                return self._identifier()
        self._start()
        return self._primary()

    def _identifier(self) -> Node:
        leading = self._accept(".")
        start = leading or self._next
        name = self._expect("IDENTIFIER", "IDENTIFIER")
        text = f".{name.text}" if leading else name.text
        message = self._message(text, name)
        if message is not None:
            return message
        if name.text in RESERVED:
            self._problems.report(start.offset, f"reserved identifier: {name.text}")
        if (opening := self._accept("(")) is not None:
            return self._call(opening.offset, text, self._arguments(), None)
        return Identifier(name.offset, text)

    def _message(self, text: str, name: Token) -> Node | None:
        """Parse `a.b.C{...}` if the tokens ahead are names up to a brace."""
        at = self._at
        while self._tokens[at].kind == "." and self._tokens[at + 1].kind == "IDENTIFIER":
            at += 2
        if self._tokens[at].kind != "{":
            return None
        text += "".join(token.text for token in self._tokens[self._at : at])
        self._at = at
        brace = self._take()
        fields: list[MessageField] = []
        while self._next.kind != "}":
            if self._next.kind == "<EOF>":
                self._mismatched("{'}', ',', '?', IDENTIFIER, ESC_IDENTIFIER}")
            optional = self._accept("?") is not None
            field = self._field_name()
            colon = self._expect(":")
            fields.append(MessageField(colon.offset, field.text, self._expression(), optional))
            if self._accept(",") is None:
                break
        self._expect("}")
        return Message(brace.offset, text, fields)

    def _list(self) -> Node:
        offset = self._take().offset
        elements: list[Node] = []
        optional: set[int] = set()
        while self._next.kind in _STARTS or self._next.kind == "?":
            if self._accept("?") is not None:
                optional.add(len(elements))
            elements.append(self._expression())
            if self._more("]"):
                break
        self._end("]", empty=not elements)
        return ListLiteral(offset, elements, frozenset(optional))

    def _map(self) -> Node:
        offset = self._take().offset
        entries: list[tuple[Node, Node, bool]] = []
        while self._next.kind in _STARTS or self._next.kind == "?":
            optional = self._accept("?") is not None
            key = self._expression()
            self._expect(":")
            entries.append((key, self._expression(), optional))
            if self._more("}"):
                break
        self._end("}", empty=not entries)
        return MapLiteral(offset, entries)

    def _more(self, end: str) -> bool:
        """Take the comma after an element. Return whether the list or map ends instead."""
        if self._accept(",") is not None:
            return False
        if self._next.kind != end:
            expected = f"{{'{end}', ','}}"
            if not self._skip_extraneous(frozenset({end, ","}), expected):
                self._mismatched(expected)
            return self._accept(",") is None
        return True

    def _end(self, end: str, *, empty: bool) -> None:
        """Take the end of a list or map; an empty one may have a comma."""
        if empty:
            self._accept(",")
        if self._next.kind != end and self._next.kind == "<EOF>" and empty:
            self._start("?", ",", end)
        self._expect(end)

    def _number(self, sign: Token | None) -> Node:
        token = self._take()
        offset = token.offset if sign is None else sign.offset
        if token.kind == "NUM_FLOAT":
            return Literal(offset, -float(token.text) if sign else float(token.text))
        unsigned = token.kind == "NUM_UINT"
        digits = token.text[:-1] if unsigned else token.text
        value = int(digits, 16 if digits.startswith("0x") else 10)
        value = -value if sign else value
        if unsigned and value >= 2 * _MAX_INT:
            self._problems.report(offset, "invalid uint literal")
        elif not unsigned and not -_MAX_INT <= value < _MAX_INT:
            self._problems.report(offset, "invalid int literal")
        return Literal(offset, UInt(value) if unsigned else value)

    def _text(self) -> Node:
        token = self._take()
        if token.kind == "STRING":
            return Literal(token.offset, unquote(token.text))
        try:
            return Literal(token.offset, unquote_bytes(token.text))
        except ValueError as error:
            self._problems.report(token.offset, str(error))
            return Literal(token.offset, b"")


def _shown(token: Token) -> str:
    return token.text.replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")


def _label(kind: str) -> str:
    return kind if kind.isupper() else f"'{kind}'"


def _balanced(function: str, terms: list[Node], operators: list[int], low: int, high: int) -> Node:
    if not operators:
        return terms[0]
    middle = (low + high + 1) // 2
    left = terms[middle] if middle == low else _balanced(function, terms, operators, low, middle - 1)
    right = terms[middle + 1] if middle == high else _balanced(function, terms, operators, middle + 1, high)
    return CallNode(operators[middle], function, [left, right])
