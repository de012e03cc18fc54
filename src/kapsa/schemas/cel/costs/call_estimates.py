"""Estimated costs of Kubernetes' functions and of cel-go's extensions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kapsa.schemas.cel.costs.estimates import FREE, MAX, ONE, UNKNOWN, CallEstimate, Range, fixed
from kapsa.schemas.cel.language.syntax import Literal, Node
from kapsa.schemas.cel.language.types import Type

__all__ = ["LIST_COST", "PATTERN_FACTOR", "STRING_FACTOR", "Operand", "estimate_call"]

STRING_FACTOR, PATTERN_FACTOR = 0.1, 0.25
LIST_COST = 10
_MAX_FORMAT_PATTERN, _MAX_FORMAT = 128, 64


class Operand(NamedTuple):
    """An argument of a call: its node, its type, and its size if it is known."""

    node: Node
    type: Type
    size: Range | None
    element: Range | None = None
    """The size of the elements of a list, if the schema bounds them."""

    @property
    def bounds(self) -> Range:
        return UNKNOWN if self.size is None else self.size


Estimate = Callable[[str, "Operand | None", Sequence[Operand]], "CallEstimate | None"]


def estimate_call(
    function: str, overload: str, target: Operand | None, args: Sequence[Operand]
) -> CallEstimate | None:
    """Return the estimate of a call without that of its arguments, None if it has the cost of CEL itself."""
    estimate = _BY_OVERLOAD.get(overload) or _BY_FUNCTION.get(function)
    return None if estimate is None else estimate(overload, target, args)


def _nominal(_: str, __: Operand | None, ___: Sequence[Operand]) -> CallEstimate:
    return CallEstimate(ONE)


def _scan(_: str, target: Operand | None, __: Sequence[Operand]) -> CallEstimate | None:
    """Estimate `sum`, `indexOf` and the like: each element is compared, texts by their length."""
    if target is None:
        return None
    if not target.type.params:
        return CallEstimate(target.bounds.scaled(STRING_FACTOR))
    cost = ONE
    if target.type.params[0].kind in ("string", "bytes"):
        cost = cost.plus((target.element or UNKNOWN).scaled(STRING_FACTOR))
    return CallEstimate(target.bounds.multiplied(cost))


def _parse(_: str, __: Operand | None, args: Sequence[Operand]) -> CallEstimate | None:
    return CallEstimate(args[0].bounds.scaled(STRING_FACTOR)) if args else None


def _parse_url(_: str, __: Operand | None, args: Sequence[Operand]) -> CallEstimate | None:
    size = args[0].bounds
    return CallEstimate(size.scaled(STRING_FACTOR), size)


def _parse_ip(overload: str, target: Operand | None, args: Sequence[Operand]) -> CallEstimate | None:
    return CallEstimate(ONE) if overload == "cidr_ip" else _parse(overload, target, args)


def _canonical(_: str, __: Operand | None, args: Sequence[Operand]) -> CallEstimate | None:
    return CallEstimate(args[0].bounds.scaled(2 * STRING_FACTOR))


def _copy(_: str, target: Operand | None, __: Sequence[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    return CallEstimate(target.bounds.scaled(STRING_FACTOR), target.bounds)


def _replace(_: str, target: Operand | None, args: Sequence[Operand]) -> CallEstimate | None:
    if target is None or len(args) < 2:
        return None
    size, old, new = target.bounds, args[0].bounds, args[1].bounds
    most_count, most_kept = 0, 0
    if old.least == 0:
        # An empty text is replaced between all characters.
        most_count, most_kept = min(size.most + 1, MAX), size.most
    elif new.most <= old.least:
        most_kept = size.most
    else:
        most_count = math.ceil(float(size.most) / old.least)
    least_count, least_kept = 0, 0
    if old.most == 0:
        least_count, least_kept = size.least + 1, size.least
    elif old.most <= new.least:
        least_kept = size.least
    else:
        least_count = math.ceil(float(size.least) / old.most)
    result = Range(least_count, most_count).multiplied(new).plus(Range(least_kept, most_kept))
    return CallEstimate(size.scaled(2 * STRING_FACTOR), result)


def _split(_: str, target: Operand | None, args: Sequence[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    most = target.bounds.most
    if len(args) > 1 and isinstance(args[1].node, Literal) and isinstance(args[1].node.value, int):
        most = args[1].node.value & MAX
    return CallEstimate(target.bounds.scaled(2 * STRING_FACTOR), Range(0, most))


def _join(_: str, target: Operand | None, args: Sequence[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    count = target.bounds
    size = FREE
    if target.type.params:
        size = count.multiplied(target.element or UNKNOWN)
    if args:
        separators = Range(max(count.least - 1, 0), max(count.most - 1, 0))
        size = size.plus(args[0].bounds.multiplied(separators))
    return CallEstimate(size.scaled(STRING_FACTOR), size)


def _find(_: str, target: Operand | None, args: Sequence[Operand]) -> CallEstimate | None:
    if target is None or not args:
        return None
    text = target.bounds.plus(ONE).scaled(STRING_FACTOR)
    cost = text.multiplied(args[0].bounds.scaled(PATTERN_FACTOR))
    return CallEstimate(cost, Range(0, target.bounds.most))


def _contains_in_network(overload: str, _: Operand | None, args: Sequence[Operand]) -> CallEstimate | None:
    size = Range(4, 16)
    cost = size.plus(size).scaled(STRING_FACTOR)
    if overload.startswith("cidr_contains_cidr"):
        cost = cost.plus(size.scaled(STRING_FACTOR)).plus(ONE)
    if overload.endswith("_string"):
        cost = cost.plus(args[0].bounds.scaled(STRING_FACTOR))
    return CallEstimate(cost)


def _validate(_: str, __: Operand | None, args: Sequence[Operand]) -> CallEstimate | None:
    text = args[0].bounds.scaled(STRING_FACTOR)
    return CallEstimate(text.scaled(_MAX_FORMAT_PATTERN * PATTERN_FACTOR))


def _equality(_: str, __: Operand | None, args: Sequence[Operand]) -> CallEstimate | None:
    one, other = args[0].type, args[1].type
    if not one.is_exactly(other) or one.declared is not None:
        return None
    if one.name in ("net.IP", "net.CIDR", "kubernetes.Quantity", "kubernetes.Semver"):
        return CallEstimate(ONE)
    if one.name == "kubernetes.NamedFormat":
        return CallEstimate(Range(1, _MAX_FORMAT).scaled(STRING_FACTOR))
    if one.name == "kubernetes.URL":
        size = args[1].size or ONE
        return CallEstimate(Range(1, size.most).scaled(STRING_FACTOR))
    return None


def _sets(factor: int) -> Estimate:
    def estimate(_: str, __: Operand | None, args: Sequence[Operand]) -> CallEstimate:
        cost = args[0].bounds.multiplied(args[1].bounds).scaled(factor).plus(ONE)
        return CallEstimate(cost)

    return estimate


def _allocation(factor: float, size: Range) -> CallEstimate:
    return CallEstimate(size.scaled(factor).plus(ONE).plus(fixed(LIST_COST)), size)


def _whole_number(operand: Operand, default: int) -> int:
    value = operand.node.value if isinstance(operand.node, Literal) else None
    return max(value, 0) if type(value) is int else default


def _slice(_: str, target: Operand | None, args: Sequence[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    start, end = _whole_number(args[0], 0), _whole_number(args[1], target.bounds.most)
    return _allocation(1, fixed((end - start) & MAX))


def _numbers(_: str, __: Operand | None, args: Sequence[Operand]) -> CallEstimate | None:
    return _allocation(1, fixed(_whole_number(args[0], MAX)))


def _reverse(_: str, target: Operand | None, __: Sequence[Operand]) -> CallEstimate | None:
    return None if target is None else _allocation(1, target.bounds)


def _flatten(_: str, target: Operand | None, args: Sequence[Operand]) -> CallEstimate | None:
    if target is None:
        return None
    return _allocation(float(_whole_number(args[0], MAX)) if args else 1, target.bounds)


def _distinct(_: str, target: Operand | None, __: Sequence[Operand]) -> CallEstimate | None:
    return None if target is None else _allocation(2, target.bounds.multiplied(target.bounds))


def _sort(overload: str, target: Operand | None, args: Sequence[Operand]) -> CallEstimate | None:
    keys = args[0] if args else target
    if keys is None:
        return None
    texts = overload.startswith(("list_string_", "list_bytes_"))
    return _allocation(2 + STRING_FACTOR if texts else 2, keys.bounds.multiplied(keys.bounds))


_BY_OVERLOAD: dict[str, Estimate] = {
    "list_sets_contains_list": _sets(1),
    "list_sets_intersects_list": _sets(1),
    "list_sets_equivalent_list": _sets(2),
    "list_slice": _slice,
    "list_flatten": _flatten,
    "list_flatten_int": _flatten,
    "lists_range": _numbers,
    "list_reverse": _reverse,
    "list_distinct": _distinct,
}
_BY_FUNCTION: dict[str, Estimate] = {
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _scan),
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim"), _copy),
    **dict.fromkeys(("find", "findAll"), _find),
    **dict.fromkeys(("cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"), _parse),
    **dict.fromkeys(("containsIP", "containsCIDR"), _contains_in_network),
    **dict.fromkeys(("sort", "@sortByAssociatedKeys"), _sort),
    **dict.fromkeys(
        [
            "masked",
            "prefixLength",
            "family",
            "isUnspecified",
            "isLoopback",
            "isLinkLocalMulticast",
            "isLinkLocalUnicast",
            "isGlobalUnicast",
            "sign",
            "asInteger",
            "isInteger",
            "asApproximateFloat",
            "isGreaterThan",
            "isLessThan",
            "compareTo",
            "add",
            "sub",
            "major",
            "minor",
            "patch",
            "getScheme",
            "getHostname",
            "getHost",
            "getPort",
            "getEscapedPath",
            "getQuery",
            "format.named",
        ],
        _nominal,
    ),
    "url": _parse_url,
    "replace": _replace,
    "split": _split,
    "join": _join,
    "ip": _parse_ip,
    "ip.isCanonical": _canonical,
    "validate": _validate,
    "_==_": _equality,
}
