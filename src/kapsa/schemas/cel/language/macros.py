"""The macros of CEL: calls such as `has(a.b)` and `list.all(x, ...)` that the parser rewrites."""

from __future__ import annotations

import copy
from collections.abc import Callable

from kapsa.schemas.cel.language.syntax import (
    CallNode,
    Comprehension,
    Identifier,
    ListLiteral,
    Literal,
    MapLiteral,
    Node,
    Select,
)

__all__ = ["ACCUMULATOR", "MACROS", "MacroError"]

ACCUMULATOR = "@result"
_FORBIDDEN = (ACCUMULATOR, "__result__")
_INPUT = "@__sortBy_input__"
_UNUSED = "#unused"
_NOT_A_NAME = "argument is not an identifier"

Expand = Callable[[int, "Node | None", list[Node]], Node]


class MacroError(ValueError):
    """A macro whose arguments do not fit it."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.offset = offset


def _variable(node: Node, problem: str = "argument must be a simple name") -> str:
    if not isinstance(node, Identifier):
        raise MacroError(node.offset, problem)
    return node.name


def _checked_variable(node: Node, problem: str = "argument must be a simple name") -> str:
    name = _variable(node, problem)
    if name in _FORBIDDEN:
        raise MacroError(node.offset, "iteration variable overwrites accumulator variable")
    return name


def _variables(first: Node, second: Node) -> tuple[str, str]:
    names = _variable(first), _variable(second)
    if names[0] == names[1]:
        raise MacroError(second.offset, f"duplicate variable name: {names[0]}")
    return _checked_variable(first), _checked_variable(second)


def _has(offset: int, target: Node | None, args: list[Node]) -> Node:
    argument = args[0]
    if not isinstance(argument, Select) or argument.test:
        raise MacroError(argument.offset, "invalid argument to has() macro")
    return Select(offset, argument.operand, argument.field, test=True)


def _quantifier(kind: str) -> Expand:
    def expand(offset: int, target: Node | None, args: list[Node]) -> Node:
        two = len(args) == 3
        first, second = _variables(args[0], args[1]) if two else (_checked_variable(args[0]), "")
        predicate = args[-1]

        def accumulated() -> Node:
            return Identifier(offset, ACCUMULATOR)

        def call(function: str, *operands: Node) -> Node:
            return CallNode(offset, function, list(operands))

        result = accumulated()
        if kind == "all":
            initial: Node = Literal(offset, True)
            condition = call("@not_strictly_false", accumulated())
            step = call("_&&_", accumulated(), predicate)
        elif kind == "exists":
            initial = Literal(offset, False)
            condition = call("@not_strictly_false", call("!_", accumulated()))
            step = call("_||_", accumulated(), predicate)
        else:
            initial = Literal(offset, 0)
            condition = Literal(offset, True)
            more = call("_+_", accumulated(), Literal(offset, 1))
            step = call("_?_:_", predicate, more, accumulated())
            result = call("_==_", accumulated(), Literal(offset, 1))
        return _fold(offset, target, first, second, initial, condition, step, result)

    return expand


def _fold(
    offset: int,
    target: Node | None,
    first: str,
    second: str,
    initial: Node,
    condition: Node,
    step: Node,
    result: Node,
) -> Node:
    assert target is not None
    return Comprehension(offset, target, first, ACCUMULATOR, initial, condition, step, result, second)


def _collect(
    offset: int, target: Node | None, names: tuple[str, str], initial: Node, parts: list[Node]
) -> Node:
    """Fold into a list or map; `parts` are an optional filter and the step's expression."""
    step = parts[-1]
    if len(parts) == 2:
        step = CallNode(offset, "_?_:_", [parts[0], step, Identifier(offset, ACCUMULATOR)])
    result = Identifier(offset, ACCUMULATOR)
    return _fold(offset, target, *names, initial, Literal(offset, True), step, result)


def _append(offset: int, item: Node) -> Node:
    return CallNode(offset, "_+_", [Identifier(offset, ACCUMULATOR), ListLiteral(offset, [item])])


def _map(offset: int, target: Node | None, args: list[Node]) -> Node:
    name = _checked_variable(args[0], _NOT_A_NAME)
    parts = [*args[1:-1], _append(offset, args[-1])]
    return _collect(offset, target, (name, ""), ListLiteral(offset, []), parts)


def _filter(offset: int, target: Node | None, args: list[Node]) -> Node:
    name = _checked_variable(args[0], _NOT_A_NAME)
    parts = [args[1], _append(offset, args[0])]
    return _collect(offset, target, (name, ""), ListLiteral(offset, []), parts)


def _transform_list(offset: int, target: Node | None, args: list[Node]) -> Node:
    names = _variables(args[0], args[1])
    parts = [*args[2:-1], _append(offset, args[-1])]
    return _collect(offset, target, names, ListLiteral(offset, []), parts)


def _transform_map(offset: int, target: Node | None, args: list[Node]) -> Node:
    names = _variables(args[0], args[1])
    inserted = [Identifier(offset, ACCUMULATOR), Identifier(offset, names[0]), args[-1]]
    parts = [*args[2:-1], CallNode(offset, "cel.@mapInsert", inserted)]
    return _collect(offset, target, names, MapLiteral(offset, []), parts)


def _transform_map_entry(offset: int, target: Node | None, args: list[Node]) -> Node:
    names = _variables(args[0], args[1])
    inserted = [Identifier(offset, ACCUMULATOR), args[-1]]
    parts = [*args[2:-1], CallNode(offset, "cel.@mapInsert", inserted)]
    return _collect(offset, target, names, MapLiteral(offset, []), parts)


def _bind(offset: int, name: str, value: Node, result: Node) -> Node:
    return Comprehension(
        offset,
        ListLiteral(offset, []),
        _UNUSED,
        name,
        value,
        Literal(offset, False),
        Identifier(offset, name),
        result,
    )


def _optional_map(function: str) -> Expand:
    def expand(offset: int, target: Node | None, args: list[Node]) -> Node:
        if not isinstance(args[0], Identifier):
            raise MacroError(args[0].offset, f"{function}() variable name must be a simple identifier")
        value = CallNode(offset, "value", [], copy.deepcopy(target))
        mapped = _bind(offset, args[0].name, value, args[1])
        if function == "optMap":
            mapped = CallNode(offset, "optional.of", [mapped])
        given = CallNode(offset, "hasValue", [], target)
        return CallNode(offset, "_?_:_", [given, mapped, CallNode(offset, "optional.none", [])])

    return expand


def _sort_by(offset: int, target: Node | None, args: list[Node]) -> Node:
    assert target is not None
    if isinstance(target, (Literal, MapLiteral)):
        text = "sortBy can only be applied to a list, identifier, comprehension, call or select expression"
        raise MacroError(target.offset, text)
    keys = _map(offset, Identifier(offset, _INPUT), args)
    ordered = CallNode(offset, "@sortByAssociatedKeys", [keys], Identifier(offset, _INPUT))
    return _bind(offset, _INPUT, target, ordered)


MACROS: dict[tuple[str, int, bool], Expand] = {
    ("has", 1, False): _has,
    ("all", 2, True): _quantifier("all"),
    ("all", 3, True): _quantifier("all"),
    ("exists", 2, True): _quantifier("exists"),
    ("exists", 3, True): _quantifier("exists"),
    ("exists_one", 2, True): _quantifier("exists_one"),
    ("exists_one", 3, True): _quantifier("exists_one"),
    ("existsOne", 3, True): _quantifier("exists_one"),
    ("map", 2, True): _map,
    ("map", 3, True): _map,
    ("filter", 2, True): _filter,
    ("transformList", 3, True): _transform_list,
    ("transformList", 4, True): _transform_list,
    ("transformMap", 3, True): _transform_map,
    ("transformMap", 4, True): _transform_map,
    ("transformMapEntry", 3, True): _transform_map_entry,
    ("transformMapEntry", 4, True): _transform_map_entry,
    ("optMap", 2, True): _optional_map("optMap"),
    ("optFlatMap", 2, True): _optional_map("optFlatMap"),
    ("sortBy", 2, True): _sort_by,
}
"""The macros that kube-apiserver offers, by name, number of arguments, and whether they are methods."""
