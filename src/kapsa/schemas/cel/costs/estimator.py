"""Estimates of the worst cost of an expression, from the bounds that a schema sets on its values.

kube-apiserver rejects a CRD whose rules can cost too much. The estimate follows cel-go: each node has a cost,
calls on texts and lists depend on the sizes of their arguments, and macros multiply by the size of what they
iterate over. Sizes come from the declared types, by the path of a value below `self`.
"""

from __future__ import annotations

from kapsa.schemas.cel.costs.call_estimates import (
    LIST_COST,
    PATTERN_FACTOR,
    STRING_FACTOR,
    Operand,
    estimate_call,
)
from kapsa.schemas.cel.costs.estimates import (
    FREE,
    MAX,
    ONE,
    UNKNOWN,
    CallEstimate,
    EntrySizes,
    Range,
    fixed,
)
from kapsa.schemas.cel.declared_types import DeclaredType
from kapsa.schemas.cel.language.macros import ACCUMULATOR
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
from kapsa.schemas.cel.language.types import Type

__all__ = ["estimate"]

_MAP_COST = 30
_SCALARS = frozenset({"bool", "double", "duration", "int", "timestamp", "uint"})
_ORDERED_TEXTS = frozenset(
    f"{name}_{kind}"
    for name in ("less", "less_equals", "greater", "greater_equals")
    for kind in ("string", "bytes")
)
Path = tuple[str, ...]


def estimate(root: Node, declared: DeclaredType) -> int:
    """Return the most that an expression over `self` of a declared type can cost."""
    return _Estimator(declared).cost(root).most


class _Variable:
    """A variable of a comprehension: the path and the sizes of its values."""

    __slots__ = ("entries", "path", "size")

    def __init__(self, path: Path, size: Range | None, entries: EntrySizes | None = None) -> None:
        self.path = path
        self.size = size
        self.entries = entries


class _Estimator:
    def __init__(self, declared: DeclaredType) -> None:
        self._declared = declared
        self._paths: dict[int, Path] = {}
        self._sizes: dict[int, Range] = {}
        self._entries: dict[int, EntrySizes] = {}
        self._variables: dict[str, list[_Variable]] = {}

    def cost(self, node: Node) -> Range:
        match node:
            case Identifier():
                variable = self._variable(node)
                self._paths[id(node)] = (node.name,) if variable is None else variable.path
                return ONE
            case Select():
                return self._select(node)
            case CallNode():
                return self._call(node)
            case ListLiteral():
                return self._list(node)
            case MapLiteral():
                return self._map(node)
            case Comprehension():
                return self._binding(node) if node.is_binding else self._comprehension(node)
        return FREE

    # -- sizes ----------------------------------------------------------------------------------------------

    def _variable(self, node: Node) -> _Variable | None:
        if not isinstance(node, Identifier):
            return None
        stack = self._variables.get(node.name)
        return stack[-1] if stack else None

    def _path(self, node: Node) -> Path:
        variable = self._variable(node)
        return self._paths.get(id(node), ()) if variable is None else variable.path

    def _size(self, node: Node) -> Range | None:
        size = self._sizes.get(id(node))
        if size is None:
            size = _literal_size(node)
        if size is None:
            size = self._declared_size(self._path(node))
            if size is not None:
                self._sizes[id(node)] = size
        if size is None and _is_scalar(node.type):
            size = ONE
        if size is None:
            variable = self._variable(node)
            size = None if variable is None else variable.size
        return size

    def _size_or_unknown(self, node: Node) -> Range:
        return self._size(node) or UNKNOWN

    def _entry_sizes(self, node: Node) -> EntrySizes | None:
        entries = self._entries.get(id(node))
        if entries is None:
            variable = self._variable(node)
            entries = None if variable is None else variable.entries
        return entries

    def _declared_size(self, path: Path) -> Range | None:
        if not path:
            return None
        declared: DeclaredType | None = self._declared
        for name in path[1:]:
            if declared is None:
                return None
            if name in ("@items", "@values"):
                declared = declared.element
            elif name == "@keys":
                declared = declared.key
            else:
                field = (declared.fields or {}).get(name)
                declared = None if field is None else field.type
        return None if declared is None else Range(0, declared.max_elements)

    def _operand(self, node: Node) -> Operand:
        path = self._path(node)
        if path[:1] == (ACCUMULATOR,):
            path = ()
        element = self._declared_size((*path, "@items")) if path else None
        return Operand(node, node.type, self._size(node), element)

    # -- nodes ----------------------------------------------------------------------------------------------

    def _select(self, node: Select) -> Range:
        if node.is_type:
            self._paths[id(node)] = (node.field,)
            return ONE
        cost = self.cost(node.operand)
        if node.test:
            return cost
        self._paths[id(node)] = (*self._path(node.operand), node.field)
        return cost.plus(ONE) if node.operand.type.kind in ("map", "struct", "param") else cost

    def _list(self, node: ListLiteral) -> Range:
        cost, size = fixed(LIST_COST), Range(MAX if node.elements else 0, 0)
        for element in node.elements:
            cost = cost.plus(self.cost(element))
            size = size.union(self._size_or_unknown(element))
        self._entries[id(node)] = EntrySizes(True, ONE, size)
        return cost

    def _map(self, node: MapLiteral) -> Range:
        cost = fixed(_MAP_COST)
        keys = values = Range(MAX if node.entries else 0, 0)
        for key, value, _ in node.entries:
            cost = cost.plus(self.cost(key)).plus(self.cost(value))
            keys = keys.union(self._size_or_unknown(key))
            values = values.union(self._size_or_unknown(value))
        self._entries[id(node)] = EntrySizes(False, keys, values)
        return cost

    def _binding(self, node: Comprehension) -> Range:
        cost = self.cost(node.iterated).plus(self.cost(node.initial))
        self._push_value(node.accumulator, node.initial)
        cost = cost.plus(self.cost(node.result))
        self._variables[node.accumulator].pop()
        self._copy_sizes(node, node.result)
        return cost

    def _comprehension(self, node: Comprehension) -> Range:
        cost = self.cost(node.iterated).plus(self.cost(node.initial))
        self._push_value(node.accumulator, node.initial)
        self._push_iteration(node)
        loop = self.cost(node.condition)
        loop = self.cost(node.step).plus(loop)
        self._variables[node.variable].pop()
        if node.variable2:
            self._variables[node.variable2].pop()
        cost = cost.plus(self.cost(node.result))
        self._variables[node.accumulator].pop()
        count = self._size_or_unknown(node.iterated)
        if isinstance(node.initial, Literal):
            self._set_size(node, self._size(node.initial))
        elif isinstance(node.initial, (ListLiteral, MapLiteral)):
            self._set_size(node, count)
            entries = self._entry_sizes(node.step)
            if entries is not None:
                self._entries[id(node)] = entries
        return cost.plus(count.multiplied(loop))

    def _push(self, name: str, variable: _Variable) -> None:
        self._variables.setdefault(name, []).append(variable)

    def _push_value(self, name: str, node: Node) -> None:
        self._push(name, _Variable(self._path(node), self._size(node), self._entry_sizes(node)))

    def _push_iteration(self, node: Comprehension) -> None:
        entries, path = self._entry_sizes(node.iterated), self._path(node.iterated)
        is_list = node.iterated.type.kind == "list" if entries is None else entries.is_list
        key = None if entries is None else entries.key
        value = None if entries is None else entries.value
        if node.variable2:
            self._push(node.variable, _Variable((*path, "@indices" if is_list else "@keys"), key))
            self._push(node.variable2, _Variable((*path, "@items" if is_list else "@values"), value))
        elif is_list:
            self._push(node.variable, _Variable((*path, "@items"), value))
        else:
            self._push(node.variable, _Variable((*path, "@keys"), key))

    def _set_size(self, node: Node, size: Range | None) -> None:
        if size is not None:
            self._sizes[id(node)] = size

    def _copy_sizes(self, node: Node, source: Node) -> None:
        self._set_size(node, self._size(source))
        entries = self._entry_sizes(source)
        if entries is not None:
            self._entries[id(node)] = entries

    # -- calls ----------------------------------------------------------------------------------------------

    def _call(self, node: CallNode) -> Range:
        if node.function == "dyn":
            cost = self.cost(node.args[0])
            self._copy_sizes(node, node.args[0])
            return ONE.plus(cost)
        costs: list[Range] = []
        operands: list[Operand] = []
        for arg in node.args:
            costs.append(self.cost(arg))
            operands.append(self._operand(arg))
        total, target = FREE, None
        if node.target is not None:
            total = self.cost(node.target)
            target = self._operand(node.target)
        called, size = Range(MAX, 0), None
        for overload in node.overloads:
            one = self._overload(node, overload.id, target, operands, costs)
            called = called.union(one.cost)
            if one.size is not None:
                size = one.size if size is None else size.union(one.size)
            if overload.id in ("index_list", "index_map"):
                entries = self._entry_sizes(node.args[0])
                size = None if entries is None else entries.value
                part = "@items" if overload.id == "index_list" else "@values"
                self._paths[id(node)] = (*self._path(node.args[0]), part)
            if size is None:
                size = self._size(node)
        self._set_size(node, size)
        return total.plus(called)

    def _overload(
        self, node: CallNode, overload: str, target: Operand | None, args: list[Operand], costs: list[Range]
    ) -> CallEstimate:
        total = FREE
        for cost in costs:
            total = total.plus(cost)
        special = estimate_call(node.function, overload, target, args)
        if special is not None:
            return CallEstimate(special.cost.plus(total), special.size)
        if overload in ("logical_and", "logical_or"):
            return CallEstimate(Range(costs[0].least, total.most))
        if overload == "conditional":
            return self._conditional(node, args, costs)
        own = self._text_call(overload, target, args) or self._operator(node, overload, args)
        return CallEstimate(total.plus(ONE)) if own is None else CallEstimate(own.cost.plus(total), own.size)

    def _conditional(self, node: CallNode, args: list[Operand], costs: list[Range]) -> CallEstimate:
        entries = self._entry_sizes(args[1].node)
        union = None if entries is None else entries.union(self._entry_sizes(args[2].node))
        if union is not None:
            self._entries[id(node)] = union
        return CallEstimate(costs[0].plus(costs[1].union(costs[2])), args[1].bounds.union(args[2].bounds))

    def _text_call(self, overload: str, target: Operand | None, args: list[Operand]) -> CallEstimate | None:
        if overload == "string_format" and target is not None:
            return CallEstimate(target.bounds.scaled(STRING_FACTOR))
        if overload == "string_to_bytes":
            size = args[0].bounds
            return CallEstimate(size.scaled(STRING_FACTOR), Range(size.least, size.most * 4 & MAX))
        if overload == "bytes_to_string":
            size = args[0].bounds
            return CallEstimate(size.scaled(STRING_FACTOR), Range(size.least // 4, size.most))
        if overload == "strings_quote":
            size = args[0].bounds
            longest = (size.most * 2 + 2) & MAX
            return CallEstimate(size.scaled(STRING_FACTOR), Range(size.least + 2, longest))
        if overload in ("starts_with_string", "ends_with_string"):
            return CallEstimate(args[0].bounds.scaled(STRING_FACTOR))
        if overload == "matches_string" and target is not None:
            text = target.bounds.plus(ONE).scaled(STRING_FACTOR)
            return CallEstimate(text.multiplied(args[0].bounds.scaled(PATTERN_FACTOR)))
        if overload == "contains_string" and target is not None:
            text, part = target.bounds.scaled(STRING_FACTOR), args[0].bounds.scaled(STRING_FACTOR)
            return CallEstimate(text.multiplied(part))
        return None

    def _operator(self, node: CallNode, overload: str, args: list[Operand]) -> CallEstimate | None:
        if overload == "in_list":
            return CallEstimate(args[1].bounds)
        if overload in ("add_string", "add_bytes", "add_list"):
            size = args[0].bounds.plus(args[1].bounds)
            entries = self._entry_sizes(args[0].node)
            union = None if entries is None else entries.union(self._entry_sizes(args[1].node))
            if union is not None:
                self._entries[id(node)] = union
            return CallEstimate(ONE if overload == "add_list" else size.scaled(STRING_FACTOR), size)
        if overload in ("equals", "not_equals") or overload in _ORDERED_TEXTS:
            most = min(args[0].bounds.most, args[1].bounds.most)
            return CallEstimate(Range(1 if most else 0, most).scaled(STRING_FACTOR))
        return None


def _literal_size(node: Node) -> Range | None:
    if isinstance(node, Literal):
        return fixed(len(node.value) if isinstance(node.value, (str, bytes)) else 1)
    if isinstance(node, ListLiteral):
        return fixed(len(node.elements))
    return fixed(len(node.entries)) if isinstance(node, MapLiteral) else None


def _is_scalar(type_: Type) -> bool:
    return type_.kind in _SCALARS or (type_.is_optional and _is_scalar(type_.params[0]))
