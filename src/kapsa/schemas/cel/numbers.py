"""CEL functions for quantities and semantic versions."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from kapsa.schemas.quantities import parse

__all__ = ["FUNCTIONS"]

Carried = dict[str, Any]
_QUANTITY, _SEMVER = "kubernetes.Quantity", "kubernetes.Semver"
_VERSION = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z.-]+)?"
)
_MAP = "map<string, dyn>"


def _carry(value: Decimal) -> Carried:
    # Normalized, so that equal quantities are equal maps.
    return {_QUANTITY: str(value.normalize())}


def _quantity(text: str) -> Carried:
    return _carry(parse(text))


def _is_quantity(text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


def _value(carried: Any) -> Decimal:
    if isinstance(carried, int):
        return Decimal(carried)
    if not isinstance(carried, dict) or _QUANTITY not in carried:
        raise ValueError("no such overload")
    return Decimal(carried[_QUANTITY])


def _as_integer(carried: Carried) -> int:
    value = _value(carried)
    if value != value.to_integral_value():
        raise ValueError("cannot convert value to integer")
    return int(value)


def _is_integer(carried: Carried) -> bool:
    value = _value(carried)
    return value == value.to_integral_value() and -(1 << 63) <= value < 1 << 63


def _sign(carried: Carried) -> int:
    value = _value(carried)
    return (value > 0) - (value < 0)


def _version(text: str, normalize: bool = False) -> Carried:
    if normalize:
        text = _normalized(text)
    if _VERSION.fullmatch(text) is None:
        raise ValueError(f"invalid semantic version {text!r}")
    return {_SEMVER: text}


def _normalized(text: str) -> str:
    """Return `1.2.0` for `v1.2`: drop a leading v, add missing parts, remove leading zeros."""
    core, dash, rest = text.removeprefix("v").partition("-")
    parts = [part.lstrip("0") or "0" for part in core.split(".")]
    return ".".join([*parts, "0", "0"][: max(3, len(parts))]) + dash + rest


def _is_version(text: str, normalize: bool = False) -> bool:
    return _VERSION.fullmatch(_normalized(text) if normalize else text) is not None


def _order(carried: Carried) -> tuple[Any, ...]:
    parts = _VERSION.fullmatch(carried[_SEMVER])
    if parts is None:
        raise ValueError("no such overload")
    release = tuple(int(part) for part in parts.groups()[:3])
    if parts[4] is None:
        return *release, 1, ()
    labels = [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts[4].split(".")]
    return *release, 0, tuple(labels)


def _part(index: int) -> Callable[[Carried], int]:
    return lambda carried: int(_order(carried)[index])


def _compare(one: Any, other: Any) -> int:
    if isinstance(one, dict) and _SEMVER in one and isinstance(other, dict) and _SEMVER in other:
        left, right = _order(one), _order(other)
        return (left > right) - (left < right)
    first, second = _value(one), _value(other)
    return (first > second) - (first < second)


FUNCTIONS: dict[str, list[tuple[str, str, str, Callable[..., Any]]]] = {
    "quantity": [("", "string", _MAP, _quantity)],
    "isQuantity": [("", "string", "bool", _is_quantity)],
    "isInteger": [(".", _MAP, "bool", _is_integer)],
    "asInteger": [(".", _MAP, "int", _as_integer)],
    "asApproximateFloat": [(".", _MAP, "double", lambda carried: float(_value(carried)))],
    "sign": [(".", _MAP, "int", _sign)],
    "add": [
        (".", f"{_MAP}; {kind}", _MAP, lambda a, b: _carry(_value(a) + _value(b))) for kind in (_MAP, "int")
    ],
    "sub": [
        (".", f"{_MAP}; {kind}", _MAP, lambda a, b: _carry(_value(a) - _value(b))) for kind in (_MAP, "int")
    ],
    "compareTo": [(".", f"{_MAP}; {_MAP}", "int", _compare)],
    "isGreaterThan": [(".", f"{_MAP}; {_MAP}", "bool", lambda a, b: _compare(a, b) > 0)],
    "isLessThan": [(".", f"{_MAP}; {_MAP}", "bool", lambda a, b: _compare(a, b) < 0)],
    "semver": [("", "string", _MAP, _version), ("", "string; bool", _MAP, _version)],
    "isSemver": [("", "string", "bool", _is_version), ("", "string; bool", "bool", _is_version)],
    "major": [(".", _MAP, "int", _part(0))],
    "minor": [(".", _MAP, "int", _part(1))],
    "patch": [(".", _MAP, "int", _part(2))],
}
