"""Checks of the literals in an expression whose types fit: regular expressions, times, mixed lists, formats."""

from __future__ import annotations

from collections.abc import Sequence

from kapsa.schemas import go_regexp
from kapsa.schemas.cel.language.syntax import CallNode, ListLiteral, Literal, MapLiteral, Node, Problems
from kapsa.schemas.cel.language.types import Type, unwrap_optional
from kapsa.schemas.cel.library.text import CLAUSES, FormatError, each_clause
from kapsa.schemas.cel.values import CelDuration, CelEvaluationError, Timestamp

__all__ = ["check_literals", "failing_constant"]

_CONVERSIONS = frozenset({"bool", "bytes", "double", "duration", "int", "string", "timestamp", "uint"})


def check_literals(root: Node, problems: Problems) -> None:
    """Record the errors in an expression's literals."""
    pending: list[tuple[Node, bool]] = [(root, False)]
    while pending:
        node, formatted = pending.pop()
        if isinstance(node, CallNode):
            formatted = formatted or node.function == "format"
            _call(node, problems)
        elif not formatted and isinstance(node, ListLiteral):
            _mixed_list(node, problems)
        elif not formatted and isinstance(node, MapLiteral):
            _mixed_map(node, problems)
        pending += [(child, formatted) for child in node.children()]


def failing_constant(root: Node) -> str:
    """Return the error of a constant that cel-go computes before it evaluates the expression, "" if all work.

    These are conversions of literals, and patterns that a function searches for.
    """
    pending = [root]
    while pending:
        node = pending.pop(0)
        pending = [*node.children(), *pending]
        if not isinstance(node, CallNode):
            continue
        argument = node.args[0] if node.args else None
        if not isinstance(argument, Literal):
            continue
        try:
            if node.function in ("find", "findAll"):
                go_regexp.compile_pattern(argument.value)
            elif node.function in _CONVERSIONS and len(node.overloads) == 1:
                node.overloads[0].compute(argument.value)
        except (CelEvaluationError, go_regexp.GoRegexpError) as error:
            return str(error)
    return ""


def _call(node: CallNode, problems: Problems) -> None:
    if node.function == "format" and node.target is not None:
        _format(node, problems)
        return
    argument = node.args[0] if node.args else None
    if not isinstance(argument, Literal) or node.function not in ("duration", "timestamp", "matches"):
        return
    value = argument.value
    if not isinstance(value, str):
        return
    try:
        if node.function == "matches":
            go_regexp.compile_pattern(value)
        else:
            (CelDuration if node.function == "duration" else Timestamp).parse(value)
    except ValueError:
        problems.report(argument.offset, f"invalid {node.function} argument")


def _is_equivalent(one: Type, other: Type) -> bool:
    if one.kind != other.kind or one.name != other.name or len(one.params) != len(other.params):
        return False
    return all(map(_is_equivalent, one.params, other.params))


def _report(node: Node, expected: Type, actual: Type, problems: Problems) -> None:
    problems.report(node.offset, f"expected type '{expected.text}' but found '{actual.text}'")


def _mixed_list(node: ListLiteral, problems: Problems) -> None:
    first: Type | None = None
    for index, element in enumerate(node.elements):
        type_ = unwrap_optional(element.type)[0] if index in node.optional else element.type
        if first is None:
            first = type_
        elif not _is_equivalent(first, type_):
            _report(element, first, type_, problems)
            return


def _mixed_map(node: MapLiteral, problems: Problems) -> None:
    first: tuple[Type, Type] | None = None
    for key, value, optional in node.entries:
        type_ = unwrap_optional(value.type)[0] if optional else value.type
        if first is None:
            first = key.type, type_
            continue
        if not _is_equivalent(first[0], key.type):
            _report(key, first[0], key.type, problems)
        if not _is_equivalent(first[1], type_):
            _report(value, first[1], type_, problems)


class _BadArgumentError(FormatError):
    """An argument that its clause cannot show."""

    def __init__(self, node: Node, message: str) -> None:
        super().__init__(message)
        self.node = node


def _format(node: CallNode, problems: Problems) -> None:
    template, values = node.target, node.args[0] if node.args else None
    if not isinstance(template, Literal) or not isinstance(values, ListLiteral):
        return
    if not isinstance(template.value, str):
        return
    requested = 0

    def show(index: int, verb: str, precision: int | None) -> str:
        nonlocal requested
        requested += 1
        _check_clause(verb, values.elements[index])
        return ""

    try:
        each_clause(template.value, len(values.elements), show)
    except _BadArgumentError as error:
        problems.report(error.node.offset, str(error))
        return
    except FormatError as error:
        problems.report(node.offset, str(error))
        return
    count = len(values.elements)
    if count > requested:
        text = f"too many arguments supplied to string.format (expected {requested}, got {count})"
        problems.report(node.offset, text)


def _check_clause(verb: str, node: Node) -> None:
    kinds, message = CLAUSES[verb]
    if verb in "fe":
        kinds = (*kinds, "string")
    if not node.type.is_dyn and node.type.type_name not in kinds:
        raise _BadArgumentError(node, message.format(node.type.type_name))
    if verb == "s":
        for child in _parts(node):
            _check_clause(verb, child)


def _parts(node: Node) -> Sequence[Node]:
    if isinstance(node, (ListLiteral, MapLiteral)):
        return node.children()
    return ()
