"""Evaluation of checked expressions: each node becomes a function of the variables.

Functions of two kinds can be made from an expression: plain ones, and metered ones that add up the cost of the
evaluation. Errors are exceptions; `&&`, `||` and the macros that expand to them absorb errors as cel-go does.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

from kapsa.schemas import go_regexp
from kapsa.schemas.cel.costs.meter import LIST_COST, MAP_COST, STRUCT_COST
from kapsa.schemas.cel.folds import (
    ABSENT,
    ERRORS,
    METER,
    Evaluate,
    Frame,
    binding,
    collected,
    collection,
    fold,
    metered_quantifier,
    quantifier,
)
from kapsa.schemas.cel.language.syntax import (
    CallNode,
    Comprehension,
    Identifier,
    ListLiteral,
    Literal,
    MapLiteral,
    Message,
    Node,
    Select,
    UInt,
)
from kapsa.schemas.cel.language.types import Type
from kapsa.schemas.cel.library.signatures import Overload
from kapsa.schemas.cel.metered import charged, metered_call, metered_variable
from kapsa.schemas.cel.values import (
    NO_OVERLOAD,
    NONE,
    CelDuration,
    CelEvaluationError,
    LazyFields,
    MessageValue,
    Optional,
    Timestamp,
    TypeValue,
    type_name,
)

__all__ = ["METER", "Evaluate", "build"]

# These functions accept any values and raise the error themselves.
_DYNAMIC = frozenset(
    [
        "_==_",
        "_!=_",
        "_<_",
        "_<=_",
        "_>_",
        "_>=_",
        "_+_",
        "_-_",
        "_*_",
        "_/_",
        "_%_",
        "-_",
        "!_",
        "_[_]",
        "@in",
        "size",
        "type",
        "dyn",
        "matches",
    ]
)
_PLAINERRORS = frozenset({"contains", "startsWith", "endsWith"})
_CLASSES: dict[str, type | tuple[type, ...]] = {
    "bool": bool,
    "int": int,
    "uint": UInt,
    "double": float,
    "string": str,
    "bytes": bytes,
    "list": list,
    "map": dict,
    "timestamp": Timestamp,
    "duration": CelDuration,
    "type": TypeValue,
    "null": type(None),
}


def build(node: Node, *, metered: bool = False) -> Evaluate:
    """Return the function that evaluates a checked expression."""
    return _Builder(metered).build(node)


class _Builder:
    def __init__(self, metered: bool) -> None:
        self._metered = metered

    def build(self, node: Node) -> Evaluate:
        match node:
            case Literal():
                return _constant(node.value)
            case Identifier():
                return self._identifier(node)
            case Select():
                return self._select(node)
            case CallNode():
                return self._call(node)
            case ListLiteral():
                return self._list(node)
            case MapLiteral():
                return self._map(node)
            case Message():
                return self._message(node)
            case Comprehension():
                return self._comprehension(node)
        raise AssertionError(f"the checker rejects {type(node).__name__}")

    def _charged(self, run: Evaluate, cost: int = 1) -> Evaluate:
        if not self._metered:
            return run
        return charged(run, cost)

    def _identifier(self, node: Identifier) -> Evaluate:
        if node.is_type:
            return self._charged(_constant(TypeValue(node.type.params[0].type_name)))
        return metered_variable(node.name) if self._metered else _variable(node.name)

    def _select(self, node: Select) -> Evaluate:
        if node.is_type:
            return self._charged(_constant(TypeValue(node.type.params[0].type_name)))
        if node.variable:
            return self._charged(itemgetter(node.variable))
        operand, key = self.build(node.operand), _key(node)
        if node.test:
            return _presence(operand, key, struct=node.operand.type.kind == "struct")
        shown = node.field
        if node.operand.type.kind == "struct":

            def read(frame: Frame) -> Any:
                holder = operand(frame)
                value = holder.get(key)
                if value is None and not isinstance(holder, LazyFields):
                    raise CelEvaluationError(f"no such key: {shown}")
                return value

        else:

            def read(frame: Frame) -> Any:
                value = operand(frame)
                if isinstance(value, Optional):
                    return _optional_member(value, key)
                if not isinstance(value, dict):
                    raise CelEvaluationError(NO_OVERLOAD)
                if key not in value:
                    raise CelEvaluationError(f"no such key: {shown}")
                return value[key]

        return self._charged(read)

    def _call(self, node: CallNode) -> Evaluate:
        special = _SPECIAL.get(node.function)
        if special is not None and not (node.function == "_[_]" and not _has_optional(node)):
            return special(self, node)
        arguments = [self.build(operand) for operand in node.children()]
        compute = _matcher(node) or _function(node)
        if self._metered:
            return metered_call(node, compute, arguments)
        if len(arguments) == 1:
            (only,) = arguments
            return lambda frame: compute(only(frame))
        if len(arguments) == 2:
            first, second = arguments
            return lambda frame: compute(first(frame), second(frame))
        return lambda frame: compute(*[argument(frame) for argument in arguments])

    def conditional(self, node: CallNode) -> Evaluate:
        test, yes, no = self.build(node.args[0]), self._branch(node.args[1]), self._branch(node.args[2])

        def run(frame: Frame) -> Any:
            chosen = test(frame)
            if chosen is True:
                return yes(frame)
            if chosen is False:
                return no(frame)
            raise CelEvaluationError(NO_OVERLOAD)

        return run

    def _branch(self, node: Node) -> Evaluate:
        """Return the function of a branch of a conditional; cel-go does not charge for a variable there."""
        run = self.build(node)
        if not self._metered or not _is_variable(node):
            return run

        def refunded(frame: Frame) -> Any:
            value = run(frame)
            frame[METER].cost -= 1
            return value

        return refunded

    def logic(self, node: CallNode) -> Evaluate:
        left, right = (self.build(arg) for arg in node.args)
        decisive = node.function == "_||_"

        def run(frame: Frame) -> Any:
            try:
                value = left(frame)
                if value is decisive:
                    return decisive
                failure: Exception | None = None if type(value) is bool else CelEvaluationError(NO_OVERLOAD)
            except ERRORS as error:
                failure = error
            value = right(frame)
            if value is decisive:
                return decisive
            if failure is not None:
                raise failure
            if type(value) is not bool:
                raise CelEvaluationError(NO_OVERLOAD)
            return value

        return run

    def not_strictly_false(self, node: CallNode) -> Evaluate:
        operand = self.build(node.args[0])

        def run(frame: Frame) -> bool:
            try:
                return operand(frame) is not False
            except ERRORS:
                return True

        return self._charged(run)

    def optional_select(self, node: CallNode) -> Evaluate:
        operand = self.build(node.args[0])
        field = node.args[1]
        assert isinstance(field, Literal)
        key = _declared_name(node.args[0].type, field.value)
        return self._charged(lambda frame: _optional_member(operand(frame), key))

    def optional_index(self, node: CallNode) -> Evaluate:
        operand, index = (self.build(arg) for arg in node.args)
        return self._charged(lambda frame: _optional_item(operand(frame), index(frame)))

    def or_optional(self, node: CallNode) -> Evaluate:
        assert node.target is not None
        left, right = self.build(node.target), self.build(node.args[0])
        unwrap = node.function == "orValue"

        def run(frame: Frame) -> Any:
            value = left(frame)
            if not isinstance(value, Optional):
                raise CelEvaluationError(NO_OVERLOAD)
            if value.given:
                return value.value if unwrap else value
            return right(frame)

        return self._charged(run)

    def _list(self, node: ListLiteral) -> Evaluate:
        if not node.optional and all(isinstance(element, Literal) for element in node.elements):
            items = [element.value for element in node.elements if isinstance(element, Literal)]
            return self._charged(_constant(items), LIST_COST)
        elements = [self.build(element) for element in node.elements]
        if not node.optional:
            return self._charged(lambda frame: [element(frame) for element in elements], LIST_COST)

        def run(frame: Frame) -> list[Any]:
            values = []
            for index, element in enumerate(elements):
                value = element(frame)
                if index not in node.optional:
                    values.append(value)
                elif value.given:
                    values.append(value.value)
            return values

        return self._charged(run, LIST_COST)

    def _map(self, node: MapLiteral) -> Evaluate:
        entries = [(self.build(key), self.build(value), optional) for key, value, optional in node.entries]

        def run(frame: Frame) -> dict[Any, Any]:
            values: dict[Any, Any] = {}
            for key, value, optional in entries:
                name, item = key(frame), value(frame)
                if name in values:
                    raise CelEvaluationError("failed with repeated key")
                if not optional:
                    values[name] = item
                elif item.given:
                    values[name] = item.value
            return values

        return self._charged(run, MAP_COST)

    def _message(self, node: Message) -> Evaluate:
        name = node.type.name
        fields = [(field.name, self.build(field.value), field.optional) for field in node.fields]

        def run(frame: Frame) -> MessageValue:
            message = MessageValue(name)
            for field, value, optional in fields:
                item = value(frame)
                if not optional:
                    message[field] = item
                elif item.given:
                    message[field] = item.value
            return message

        return self._charged(run, STRUCT_COST)

    def _comprehension(self, node: Comprehension) -> Evaluate:
        if node.is_binding:
            value, result = self.build(node.initial), self.build(node.result)
            return self._charged(binding(node.accumulator, value, result), LIST_COST)
        iterated = self.build(node.iterated)
        parts = collected(node)
        if parts is not None:
            keep, item = parts
            return collection(
                node, iterated, None if keep is None else self.build(keep), self.build(item), self._metered
            )
        if isinstance(node.initial, Literal) and isinstance(node.step, CallNode):
            step = node.step
            if step.function in ("_&&_", "_||_") and isinstance(step.args[0], Identifier):
                predicate = self.build(step.args[1])
                build = metered_quantifier if self._metered else quantifier
                return build(node, iterated, predicate, decisive=step.function == "_||_")
        return fold(
            node,
            iterated,
            self.build(node.initial),
            self.build(node.condition),
            self.build(node.step),
            self.build(node.result),
        )


_SPECIAL: dict[str, Callable[[_Builder, CallNode], Evaluate]] = {
    "_?_:_": _Builder.conditional,
    "_&&_": _Builder.logic,
    "_||_": _Builder.logic,
    "@not_strictly_false": _Builder.not_strictly_false,
    "_?._": _Builder.optional_select,
    "_[?_]": _Builder.optional_index,
    "_[_]": _Builder.optional_index,
    "or": _Builder.or_optional,
    "orValue": _Builder.or_optional,
}


def _constant(value: Any) -> Evaluate:
    return lambda frame: value


def _is_variable(node: Node) -> bool:
    """Return whether a node is a variable, or a field of one."""
    while isinstance(node, Select) and not node.test:
        node = node.operand
    return isinstance(node, Identifier)


def _declared_name(type_: Type, field: str) -> str:
    """Return the name in JSON of a field that an expression accesses by its escaped name."""
    if type_.is_optional:
        type_ = type_.params[0]
    fields = None if type_.declared is None else type_.declared.fields
    if fields is None:
        return field
    declared = fields.get(field) or fields.get(f"__{field}__")
    return field if declared is None else declared.name


def _key(node: Select) -> str:
    return _declared_name(node.operand.type, node.field)


def _presence(operand: Evaluate, key: str, *, struct: bool) -> Evaluate:
    def run(frame: Frame) -> bool:
        value = operand(frame)
        if isinstance(value, Optional):
            return value.given and _member(value.value, key) is not ABSENT
        if not isinstance(value, dict):
            raise CelEvaluationError(NO_OVERLOAD)
        return value.get(key) is not None if struct else key in value

    return run


def _member(value: Any, key: Any) -> Any:
    return value.get(key, ABSENT) if isinstance(value, dict) else ABSENT


def _optional_member(value: Any, key: Any) -> Optional:
    if isinstance(value, Optional):
        if not value.given:
            return NONE
        value = value.value
    if not isinstance(value, dict):
        raise CelEvaluationError(NO_OVERLOAD)
    member = _member(value, key)
    return NONE if member is ABSENT or member is None else Optional(member)


def _optional_item(value: Any, index: Any) -> Optional:
    if isinstance(value, Optional):
        if not value.given:
            return NONE
        value = value.value
    if isinstance(value, list):
        return Optional(value[index]) if 0 <= index < len(value) else NONE
    member = _member(value, index)
    return NONE if member is ABSENT else Optional(member)


def _has_optional(node: CallNode) -> bool:
    return node.args[0].type.is_optional


def _matcher(node: CallNode) -> Callable[..., Any] | None:
    """Return the function for `matches` with a literal pattern, which is compiled once."""
    pattern = node.children()[-1] if node.function == "matches" else None
    if not isinstance(pattern, Literal):
        return None
    search = go_regexp.compile_pattern(pattern.value).search
    return lambda text, _: search(text) is not None


def _function(node: CallNode) -> Callable[..., Any]:
    overloads: list[Overload] = node.overloads
    if node.function in _DYNAMIC:
        return overloads[0].compute
    if len(overloads) == 1 and not any(_is_uncertain(operand.type) for operand in node.children()):
        return overloads[0].compute
    function = node.function
    searched = function in ("find", "findAll") and isinstance(node.args[0], Literal)
    plain = function in _PLAINERRORS or searched

    def dispatch(*args: Any) -> Any:
        for overload in overloads:
            if len(overload.params) == len(args) and all(map(_accepts, overload.params, args)):
                return overload.compute(*args)
        if plain:
            raise CelEvaluationError(NO_OVERLOAD)
        raise CelEvaluationError(f"{NO_OVERLOAD}: {function}({', '.join(map(type_name, args))})")

    return dispatch


def _is_uncertain(type_: Type) -> bool:
    return type_.is_dyn or any(map(_is_uncertain, type_.params))


def _accepts(param: Type, value: Any) -> bool:
    if param.kind in ("dyn", "param"):
        return True
    if param.kind in ("opaque", "struct"):
        return getattr(value, "type_name", "") == param.name
    if param.kind == "int":
        return type(value) is int
    if not isinstance(value, _CLASSES[param.kind]):
        return False
    if isinstance(value, list) and value and param.params[0].kind != "param":
        return _accepts(param.params[0], value[0])
    return True


def _variable(name: str) -> Evaluate:
    def read(frame: Frame) -> Any:
        value = frame[name]
        if isinstance(value, BaseException):  # an accumulator whose step failed
            raise value
        return value

    return read
