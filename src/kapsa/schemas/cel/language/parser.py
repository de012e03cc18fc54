"""A parser of CEL expressions. Macros are expanded on the way."""

from __future__ import annotations

from kapsa.schemas.cel.language.macros import MACROS, MacroError
from kapsa.schemas.cel.language.syntax import (
    RESERVED,
    Call,
    Identifier,
    ListLiteral,
    Literal,
    MapLiteral,
    Message,
    Node,
    Problems,
    Select,
    Token,
    UInt,
    tokenize,
    unquote,
    unquote_bytes,
)

__all__ = ["MAX_DEPTH", "parse"]

MAX_DEPTH = 250
_MAX_LENGTH = 100_000
_RELATIONS = frozenset({"<", "<=", ">=", ">", "==", "!=", "in"})
_PRODUCTS = frozenset({"*", "/", "%"})
_SUMS = frozenset({"+", "-"})
_STARTS = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"
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
            if self._next.kind != "<EOF>":
                self._unexpected("<EOF>", extraneous=True)
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
        if self._next.kind != kind:
            self._unexpected(expected or f"'{kind}'")
        return self._take()

    def _unexpected(self, expected: str, *, extraneous: bool = False) -> None:
        token = self._next
        shown = token.text.replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
        verb = "extraneous" if extraneous and self._tokens[self._at + 1].kind == "<EOF>" else "mismatched"
        self._problems.report(token.offset, f"Syntax error: {verb} input '{shown}' expecting {expected}")
        raise _SyntaxStopError

    def _expression(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._problems.report(0, f"expression recursion limit exceeded: {MAX_DEPTH}")
            raise _SyntaxStopError
        condition = self._chain("||")
        if (question := self._accept("?")) is not None:
            yes = self._chain("||")
            self._expect(":")
            no = self._expression()
            condition = Call(question.offset, "_?_:_", [condition, yes, no])
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
            left = Call(token.offset, function, [left, self._sum()])
        return left

    def _sum(self) -> Node:
        left = self._product()
        while self._next.kind in _SUMS:
            token = self._take()
            left = Call(token.offset, f"_{token.kind}_", [left, self._product()])
        return left

    def _product(self) -> Node:
        left = self._unary()
        while self._next.kind in _PRODUCTS:
            token = self._take()
            left = Call(token.offset, f"_{token.kind}_", [left, self._unary()])
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
        return Call(first.offset, "!_" if first.kind == "!" else "-_", [operand])

    def _member(self, node: Node) -> Node:
        while True:
            if (dot := self._accept(".")) is not None:
                node = self._select(node, dot)
            elif (bracket := self._accept("[")) is not None:
                optional = self._accept("?") is not None
                index = self._expression()
                self._expect("]")
                node = Call(bracket.offset, "_[?_]" if optional else "_[_]", [node, index])
            else:
                return node

    def _select(self, operand: Node, dot: Token) -> Node:
        if self._accept("?") is not None:
            name = self._field_name()
            field = Literal(name.offset, name.text)
            return Call(dot.offset, "_?._", [operand, field])
        name = self._field_name()
        if name.kind == "IDENTIFIER" and (opening := self._accept("(")) is not None:
            return self._call(opening.offset, name.text, self._arguments(), operand)
        return Select(dot.offset, operand, name.text)

    def _field_name(self) -> Token:
        token = self._next
        if token.kind == "ESC_IDENTIFIER":
            self._problems.report(token.offset, "unsupported syntax: '`'")
            return self._take()
        if token.kind != "IDENTIFIER":
            shown = token.text
            kind = "no viable alternative at input" if token.kind in ("in", "true", "false", "null") else ""
            if kind:
                before = self._tokens[self._at - 1]
                text = f"Syntax error: {kind} '{before.text}{shown}'"
                self._problems.report(token.offset, text)
            else:
                text = (
                    f"Syntax error: no viable alternative at input '.{shown}'"
                    if token.kind != "<EOF>"
                    else ("Syntax error: no viable alternative at input '.'")
                )
                self._problems.report(token.offset, text)
            raise _SyntaxStopError
        return self._take()

    def _arguments(self) -> list[Node]:
        args: list[Node] = []
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
            return Call(offset, function, args, target)
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
        self._unexpected(_STARTS)
        raise AssertionError("unreachable")

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
        fields: list[tuple[str, Node]] = []
        while self._next.kind != "}":
            self._accept("?")
            field = self._field_name()
            self._expect(":")
            fields.append((field.text, self._expression()))
            if self._accept(",") is None:
                break
        self._expect("}")
        return Message(brace.offset, text, fields)

    def _list(self) -> Node:
        offset = self._take().offset
        elements: list[Node] = []
        optional: set[int] = set()
        while self._next.kind != "]":
            if self._accept("?") is not None:
                optional.add(len(elements))
            elements.append(self._expression())
            if self._accept(",") is None:
                break
        self._expect("]")
        return ListLiteral(offset, elements, frozenset(optional))

    def _map(self) -> Node:
        offset = self._take().offset
        entries: list[tuple[Node, Node, bool]] = []
        while self._next.kind != "}":
            optional = self._accept("?") is not None
            key = self._expression()
            self._expect(":")
            entries.append((key, self._expression(), optional))
            if self._accept(",") is None:
                break
        self._expect("}")
        return MapLiteral(offset, entries)

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
        value = unquote_bytes(token.text) if token.kind == "BYTES" else unquote(token.text)
        return Literal(token.offset, value)


def _balanced(function: str, terms: list[Node], operators: list[int], low: int, high: int) -> Node:
    if not operators:
        return terms[0]
    middle = (low + high + 1) // 2
    left = terms[middle] if middle == low else _balanced(function, terms, operators, low, middle - 1)
    right = terms[middle + 1] if middle == high else _balanced(function, terms, operators, middle + 1, high)
    return Call(operators[middle], function, [left, right])
