"""The type checker of CEL: it finds the type of each node, and the declarations that each call can mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from kapsa.schemas.cel.language import types
from kapsa.schemas.cel.language.parser import parse
from kapsa.schemas.cel.language.syntax import (
    RESERVED,
    CallNode,
    Comprehension,
    Identifier,
    ListLiteral,
    Literal,
    MapLiteral,
    Message,
    MessageField,
    Node,
    Problems,
    Select,
    UInt,
)
from kapsa.schemas.cel.language.types import (
    BOOL,
    DYN,
    ERROR,
    INT,
    Substitutions,
    Type,
    most_general,
    unwrap_optional,
)
from kapsa.schemas.cel.library import FUNCTIONS
from kapsa.schemas.cel.library.signatures import Functions, Overload
from kapsa.schemas.cel.literals import check_literals

__all__ = ["MessageTypes", "check", "walk"]

MessageTypes = Callable[[str], Type | None]
"""Returns the type of objects that an expression constructs by this name, None if there is none."""

_LITERALS = {
    bool: types.BOOL,
    int: types.INT,
    UInt: types.UINT,
    float: types.DOUBLE,
    str: types.STRING,
    bytes: types.BYTES,
    type(None): types.NULL,
}
_TYPE_NAMES = {
    name: types.type_of(types.parse_type(text))
    for name, text in {
        "bool": "bool",
        "bytes": "bytes",
        "double": "double",
        "duration": "duration",
        "google.protobuf.Duration": "duration",
        "google.protobuf.Timestamp": "timestamp",
        "int": "int",
        "list": "list(A)",
        "map": "map(A, B)",
        "net.CIDR": "net.CIDR",
        "net.IP": "net.IP",
        "null_type": "null",
        "optional_type": "optional_type(V)",
        "string": "string",
        "timestamp": "timestamp",
        "type": "type",
        "uint": "uint",
    }.items()
}


def check(
    source: str,
    variables: Mapping[str, Type],
    functions: Functions | None = None,
    messages: MessageTypes | None = None,
) -> Node:
    """Parse an expression and determine the types of its nodes.

    Raises CelCompileError, in the words of cel-go, if its syntax or its types are wrong.
    """
    root = parse(source)
    problems = Problems(source)
    declared = {**FUNCTIONS, **functions} if functions else FUNCTIONS
    checker = _Checker(variables, declared, messages, problems)
    checker.check(root)
    checker.resolve(root)
    problems.raise_if_any()
    check_literals(root, problems)
    problems.raise_if_any()
    return root


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and all nodes below it."""
    pending = [node]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(node.children())


class _Checker:
    def __init__(
        self,
        variables: Mapping[str, Type],
        functions: Functions,
        messages: MessageTypes | None,
        problems: Problems,
    ) -> None:
        self._scopes: list[Mapping[str, Type]] = [variables]
        self._functions = functions
        self._messages = messages
        self._problems = problems
        self._substitutions = Substitutions()
        self._free = 0

    def resolve(self, root: Node) -> None:
        """Replace the type parameters in the types of all nodes."""
        for node in walk(root):
            node.type = self._substitutions.apply(node.type, free_as_dyn=True)

    def check(self, node: Node) -> Type:
        """Determine the type of a node and of the nodes below it."""
        match node:
            case Literal():
                node.type = _LITERALS[type(node.value)]
            case Identifier():
                self._identifier(node)
            case Select():
                self._select(node)
            case CallNode():
                self._call(node)
            case ListLiteral():
                self._list(node)
            case MapLiteral():
                self._map(node)
            case Message():
                self._message(node)
            case Comprehension():
                self._comprehension(node)
        return node.type

    def _apply(self, type_: Type) -> Type:
        return self._substitutions.apply(type_)

    def _assign(self, one: Type, other: Type) -> bool:
        return self._substitutions.assign((one,), (other,))

    def _parameter(self) -> Type:
        self._free += 1
        return Type("param", f"_var{self._free - 1}")

    def _find(self, name: str) -> Type | None:
        name = name.removeprefix(".")
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        message = self._messages(name) if self._messages is not None else None
        return types.type_of(message) if message is not None else _TYPE_NAMES.get(name)

    def _is_variable(self, name: str) -> bool:
        return any(name in scope for scope in self._scopes)

    def _undeclared(self, node: Node, name: str) -> None:
        node.type = ERROR
        self._problems.report(node.offset, f"undeclared reference to '{name}' (in container '')")

    def _mismatch(self, node: Node, expected: Type, actual: Type) -> None:
        self._problems.report(node.offset, f"expected type '{expected.text}' but found '{actual.text}'")

    def _identifier(self, node: Identifier) -> None:
        type_ = self._find(node.name)
        if type_ is None:
            self._undeclared(node, node.name)
            return
        node.name = node.name.removeprefix(".")
        node.is_type = not self._is_variable(node.name)
        node.type = type_

    def _select(self, node: Select) -> None:
        name = None if node.test else _qualified_name(node)
        if name is not None and self._is_variable(name):
            node.type, node.variable = self._find(name) or ERROR, name
            return
        if name is not None and self._find(name) is not None and not self._starts_with_variable(name):
            node.type, node.is_type = self._find(name) or ERROR, True
            return
        type_ = self._field(node, node.operand, node.field, optional=False)
        node.type = BOOL if node.test else self._apply(type_)

    def _starts_with_variable(self, name: str) -> bool:
        return self._is_variable(name.partition(".")[0])

    def _field(self, node: Node, operand: Node, field: str, *, optional: bool) -> Type:
        target, is_optional = unwrap_optional(self._apply(self.check(operand)))
        result = ERROR
        if target.kind == "map":
            result = target.params[1]
        elif target.kind == "struct":
            result = self._struct_field(node, target, field)
        elif target.kind == "param":
            self._assign(DYN, target)
            result = DYN
        else:
            if target.kind not in ("dyn", "error"):
                self._problems.report(node.offset, f"type '{target.text}' does not support field selection")
            result = DYN
        return types.optional_of(result) if optional or is_optional else result

    def _struct_field(self, node: Node, target: Type, field: str) -> Type:
        declared = target.declared
        if declared is None or declared.fields is None:
            self._problems.report(node.offset, f"unexpected failed resolution of '{target.name}'")
            return ERROR
        name = field if field in declared.fields or field not in RESERVED else f"__{field}__"
        if name not in declared.fields:
            self._problems.report(node.offset, f"undefined field '{field}'")
            return ERROR
        type_: Type = declared.fields[name].type.type(f"{target.name}.{name}")
        return type_

    def _call(self, node: CallNode) -> None:
        if node.function == "_?._":
            field = node.args[1]
            field.type = types.STRING
            assert isinstance(field, Literal)
            node.type = self._apply(self._field(node, node.args[0], field.value, optional=True))
            node.overloads = self._functions["_?._"]
            return
        for arg in node.args:
            self.check(arg)
        if node.target is not None:
            prefix = _qualified_name(node.target)
            name = f"{prefix}.{node.function}".removeprefix(".") if prefix is not None else ""
            if name in self._functions:
                node.function, node.target = name, None
        if node.target is not None:
            self.check(node.target)
        declared = self._functions.get(node.function.removeprefix("."))
        if declared is None:
            self._undeclared(node, node.function)
            return
        node.function = node.function.removeprefix(".")
        self._resolve(node, declared)

    def _resolve(self, node: CallNode, declared: Sequence[Overload]) -> None:
        operands = node.children()
        if node.function in ("_&&_", "_||_"):
            self._logic(node, declared)
            return
        actual = [operand.type for operand in operands]
        result: Type | None = None
        for overload in declared:
            if overload.is_method != (node.target is not None):
                continue
            params, returned = self._instantiate(overload)
            if self._substitutions.assign(actual, params):
                node.overloads.append(overload)
                returned = self._apply(returned)
                if result is None:
                    result = returned
                elif not result.is_dyn and not returned.is_exactly(result):
                    result = DYN
        if result is None:
            shown = [self._substitutions.apply(type_, free_as_dyn=True).text for type_ in actual]
            receiver = f"{shown.pop(0)}." if node.target is not None else ""
            text = f"found no matching overload for '{node.function}' applied to '{receiver}({', '.join(shown)})'"
            self._problems.report(node.offset, text)
        node.type = result or ERROR

    def _logic(self, node: CallNode, declared: Sequence[Overload]) -> None:
        node.type, node.overloads = BOOL, list(declared)
        for arg in node.args:
            if not self._assign(arg.type, BOOL):
                self._mismatch(arg, BOOL, arg.type)
                node.type = ERROR

    def _instantiate(self, overload: Overload) -> tuple[Sequence[Type], Type]:
        """Return the parameters and the result of a declaration, with fresh type parameters."""
        if not overload.generic:
            return overload.params, overload.result
        fresh: dict[str, Type] = {}
        for type_ in (*overload.params, overload.result):
            for name in _parameters(type_):
                if name not in fresh:
                    fresh[name] = self._parameter()
        substitutions = Substitutions(fresh)
        return [substitutions.apply(param) for param in overload.params], substitutions.apply(overload.result)

    def _join(self, previous: Type | None, current: Type) -> Type:
        if previous is None:
            return current
        return most_general(previous, current) if self._assign(previous, current) else DYN

    def _optional_element(self, node: Node) -> Type:
        inner, is_optional = unwrap_optional(node.type)
        if not is_optional and not inner.is_dyn:
            self._mismatch(node, types.optional_of(inner), inner)
        return inner

    def _list(self, node: ListLiteral) -> None:
        joined: Type | None = None
        for index, element in enumerate(node.elements):
            type_ = self.check(element)
            if index in node.optional:
                type_ = self._optional_element(element)
            joined = self._join(joined, type_)
        node.type = types.list_of(joined or self._parameter())

    def _map(self, node: MapLiteral) -> None:
        keys: Type | None = None
        values: Type | None = None
        for key, value, optional in node.entries:
            keys = self._join(keys, self.check(key))
            type_ = self.check(value)
            values = self._join(values, self._optional_element(value) if optional else type_)
        node.type = types.map_of(keys or self._parameter(), values or self._parameter())

    def _message(self, node: Message) -> None:
        type_ = self._find(node.name)
        if type_ is None:
            self._undeclared(node, node.name)
            return
        node.type = ERROR
        if type_.kind != "type":
            self._problems.report(node.offset, f"'{type_.type_name}' is not a type")
        elif type_.params[0].kind != "struct":
            self._problems.report(node.offset, f"'{type_.params[0].type_name}' is not a message type")
        else:
            node.type = type_.params[0]
        for field in node.fields:
            self._message_field(field, node.type)

    def _message_field(self, field: MessageField, message: Type) -> None:
        declared = message.declared
        expected = ERROR
        if declared is not None and declared.fields is not None:
            if field.name in declared.fields:
                expected = declared.fields[field.name].type.type(f"{message.name}.{field.name}")
            else:
                self._problems.report(field.offset, f"undefined field '{field.name}'")
        actual = self.check(field.value)
        if field.optional:
            actual = self._optional_element(field.value)
        if not self._assign(expected, actual):
            expects = f"expected type of field '{field.name}' is '{expected.text}'"
            self._problems.report(field.offset, f"{expects} but provided type is '{actual.text}'")

    def _comprehension(self, node: Comprehension) -> None:
        iterated = self._apply(self.check(node.iterated))
        accumulated = self.check(node.initial)
        first, second = self._iteration(node, iterated)
        self._scopes.append({node.accumulator: accumulated})
        self._scopes.append({node.variable: first, **({node.variable2: second} if node.variable2 else {})})
        self._require(node.condition, self.check(node.condition), BOOL)
        self._require(node.step, self.check(node.step), accumulated)
        self._scopes.pop()
        self.check(node.result)
        self._scopes.pop()
        node.type = self._apply(node.result.type)

    def _iteration(self, node: Comprehension, iterated: Type) -> tuple[Type, Type]:
        """Return the types of the iteration variables."""
        if iterated.kind == "list":
            return (INT, iterated.params[0]) if node.variable2 else (iterated.params[0], DYN)
        if iterated.kind == "map":
            return iterated.params[0], iterated.params[1]
        if iterated.kind in ("dyn", "error", "param"):
            self._assign(DYN, iterated)
            return DYN, DYN
        text = (
            f"expression of type '{iterated.text}' cannot be range of a comprehension "
            "(must be list, map, or dynamic)"
        )
        self._problems.report(node.iterated.offset, text)
        return ERROR, ERROR

    def _require(self, node: Node, actual: Type, expected: Type) -> None:
        if not self._assign(expected, actual):
            self._mismatch(node, expected, actual)


def _parameters(type_: Type) -> Iterator[str]:
    if type_.kind == "param":
        yield type_.text
    for inner in type_.params:
        yield from _parameters(inner)


def _qualified_name(node: Node) -> str | None:
    """Return `a.b.c` for a chain of names, None for other nodes."""
    if isinstance(node, Identifier):
        return node.name
    if isinstance(node, Select) and not node.test:
        prefix = _qualified_name(node.operand)
        return None if prefix is None else f"{prefix}.{node.field}"
    return None
