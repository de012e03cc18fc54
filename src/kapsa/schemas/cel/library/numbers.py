"""CEL functions for quantities and semantic versions."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from kapsa.schemas.cel.library.signatures import Functions, function, method
from kapsa.schemas.cel.values import NO_OVERLOAD, CelEvaluationError, Opaque
from kapsa.schemas.go_format import quote
from kapsa.schemas.quantities import parse

__all__ = ["FUNCTIONS", "CelQuantity", "SemanticVersion"]

_DIGITS = re.compile(r"[0-9]*", re.ASCII)
_LABEL = re.compile(r"[0-9A-Za-z-]+", re.ASCII)


class CelQuantity(Opaque):
    """A resource quantity, such as 100m or 1Gi."""

    __slots__ = ("computed", "value")
    type_name = "kubernetes.Quantity"

    def __init__(self, value: Decimal, *, computed: bool = False) -> None:
        self.value = value
        self.computed = computed
        """True for the result of add and sub, which the real server cannot compare with `==` on the right."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CelQuantity) or other.computed:
            raise CelEvaluationError(NO_OVERLOAD)
        return self.value == other.value

    __hash__ = None  # type: ignore[assignment]  # compared, never a key


def _quantity(text: str) -> CelQuantity:
    try:
        return CelQuantity(parse(text))
    except ValueError as error:
        raise CelEvaluationError(str(error)) from None


def _is_quantity(text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


def _is_integer(quantity: CelQuantity) -> bool:
    value = quantity.value
    return value == value.to_integral_value() and -(1 << 63) <= value < 1 << 63


def _as_integer(quantity: CelQuantity) -> int:
    if not _is_integer(quantity):
        raise CelEvaluationError("cannot convert value to integer")
    return int(quantity.value)


def _sign(value: Any) -> int:
    return int((value > 0) - (value < 0))


def _compare(one: CelQuantity, other: CelQuantity) -> int:
    return _sign(one.value - other.value)


def _add(one: CelQuantity, other: CelQuantity | int) -> CelQuantity:
    return CelQuantity(one.value + _number(other), computed=True)


def _subtract(one: CelQuantity, other: CelQuantity | int) -> CelQuantity:
    return CelQuantity(one.value - _number(other), computed=True)


def _number(value: CelQuantity | int) -> Decimal:
    return value.value if isinstance(value, CelQuantity) else Decimal(value)


class SemanticVersion(Opaque):
    """A semantic version."""

    __slots__ = ("labels", "release")
    type_name = "kubernetes.Semver"

    def __init__(self, release: tuple[int, int, int], labels: tuple[str, ...]) -> None:
        self.release = release
        self.labels = labels

    @property
    def order(self) -> tuple[Any, ...]:
        """The key by which versions are compared: a version without labels is after one with them."""
        if not self.labels:
            return *self.release, 1, ()
        labels = [(0, int(label), "") if label.isdigit() else (1, 0, label) for label in self.labels]
        return *self.release, 0, tuple(labels)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SemanticVersion):
            raise CelEvaluationError(NO_OVERLOAD)
        return self.order == other.order

    __hash__ = None  # type: ignore[assignment]  # compared, never a key


def _version(text: str, normalize: bool = False) -> SemanticVersion:
    if normalize:
        text = _normalized(text)
    if not text:
        raise CelEvaluationError("Version string empty")
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise CelEvaluationError("No Major.Minor.Patch elements found")
    major, minor = _part("major", parts[0]), _part("minor", parts[1])
    patch, plus, build = parts[2].partition("+")
    patch, dash, labels = patch.partition("-")
    version = SemanticVersion(
        (major, minor, _part("patch", patch)), tuple(map(_checked_label, labels.split("."))) if dash else ()
    )
    if plus:
        _check_build(build)
    return version


def _part(name: str, text: str) -> int:
    if _DIGITS.fullmatch(text) is None:
        raise CelEvaluationError(f"Invalid character(s) found in {name} number {quote(text)}")
    if len(text) > 1 and text[0] == "0":
        raise CelEvaluationError(f"{name.capitalize()} number must not contain leading zeroes {quote(text)}")
    if not text:
        raise CelEvaluationError('strconv.ParseUint: parsing "": invalid syntax')
    if int(text) >= 1 << 64:
        raise CelEvaluationError(f"strconv.ParseUint: parsing {quote(text)}: value out of range")
    return int(text)


def _checked_label(label: str) -> str:
    if not label:
        raise CelEvaluationError("Prerelease is empty")
    if label.isascii() and label.isdigit():
        if len(label) > 1 and label[0] == "0":
            raise CelEvaluationError(
                f"Numeric PreRelease version must not contain leading zeroes {quote(label)}"
            )
    elif _LABEL.fullmatch(label) is None:
        raise CelEvaluationError(f"Invalid character(s) found in prerelease {quote(label)}")
    return label


def _check_build(build: str) -> None:
    for part in build.split("."):
        if not part:
            raise CelEvaluationError("Build meta data is empty")
        if _LABEL.fullmatch(part) is None:
            raise CelEvaluationError(f"Invalid character(s) found in build meta data {quote(part)}")


def _normalized(text: str) -> str:
    """Return `1.2.0` for `v1.2`: drop a leading v, add missing parts, remove leading zeros."""
    parts = text.removeprefix("v").split(".", 2)
    for index, part in enumerate(parts):
        if len(part) > 1:
            stripped = part.lstrip("0")
            parts[index] = stripped if stripped[:1].isdigit() else f"0{stripped}"
    if len(parts) < 3 and any(mark in parts[-1] for mark in "+-"):
        raise CelEvaluationError("short version cannot contain PreRelease/Build meta data")
    return ".".join([*parts, "0", "0"][: max(3, len(parts))])


def _is_version(text: str, normalize: bool = False) -> bool:
    try:
        _version(text, normalize)
    except CelEvaluationError:
        return False
    return True


def _compare_versions(one: SemanticVersion, other: SemanticVersion) -> int:
    return (one.order > other.order) - (one.order < other.order)


_Q, _V = "kubernetes.Quantity", "kubernetes.Semver"

FUNCTIONS: Functions = {
    "quantity": [function("string_to_quantity", "string", _Q, _quantity)],
    "isQuantity": [function("is_quantity_string", "string", "bool", _is_quantity)],
    "sign": [function("quantity_sign", _Q, "int", lambda quantity: _sign(quantity.value))],
    "isGreaterThan": [
        method(
            "quantity_is_greater_than", f"{_Q}; {_Q}", "bool", lambda one, other: _compare(one, other) > 0
        ),
        method("semver_is_greater_than", f"{_V}; {_V}", "bool", lambda a, b: _compare_versions(a, b) > 0),
    ],
    "isLessThan": [
        method("quantity_is_less_than", f"{_Q}; {_Q}", "bool", lambda one, other: _compare(one, other) < 0),
        method("semver_is_less_than", f"{_V}; {_V}", "bool", lambda a, b: _compare_versions(a, b) < 0),
    ],
    "compareTo": [
        method("quantity_compare_to", f"{_Q}; {_Q}", "int", _compare),
        method("semver_compare_to", f"{_V}; {_V}", "int", _compare_versions),
    ],
    "asApproximateFloat": [
        method("quantity_get_float", _Q, "double", lambda quantity: float(quantity.value))
    ],
    "asInteger": [method("quantity_get_int", _Q, "int", _as_integer)],
    "isInteger": [method("quantity_is_integer", _Q, "bool", _is_integer)],
    "add": [
        method("quantity_add", f"{_Q}; {_Q}", _Q, _add),
        method("quantity_add_int", f"{_Q}; int", _Q, _add),
    ],
    "sub": [
        method("quantity_sub", f"{_Q}; {_Q}", _Q, _subtract),
        method("quantity_sub_int", f"{_Q}; int", _Q, _subtract),
    ],
    "semver": [
        function("string_to_semver", "string", _V, _version),
        function("string_bool_to_semver", "string; bool", _V, _version),
    ],
    "isSemver": [
        function("is_semver_string", "string", "bool", _is_version),
        function("is_semver_string_bool", "string; bool", "bool", _is_version),
    ],
    "major": [method("semver_major", _V, "int", lambda version: version.release[0])],
    "minor": [method("semver_minor", _V, "int", lambda version: version.release[1])],
    "patch": [method("semver_patch", _V, "int", lambda version: version.release[2])],
}
