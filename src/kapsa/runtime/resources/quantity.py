"""Quantities such as 500m, 2Gi or 1e3, with exact arithmetic."""

from __future__ import annotations

import functools
import math
import re
from fractions import Fraction
from typing import Annotated, Any, Self

from kapsa.runtime.resources.model import Field

__all__ = ["IntOrString", "Quantity"]

IntOrString = Annotated[int | str, Field(int_or_string=True)]
"""A number or a string, such as a port number or name, or 3 or "25%"."""

_NUMBER = r"(([0-9]{1,99}(\.[0-9]{0,99})?)|(\.[0-9]{1,99}))"
_PATTERN = rf"^(\+|-)?{_NUMBER}(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]{{1,2}}))?$"
"""The texts that a cluster accepts. None of them may be unreadable: such an object could not be reconciled at all."""
_PARTS = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([KMGTPE]i|[numkMGTPE])|[eE]([+-]?\d+))?", re.ASCII)
_BINARY = {
    suffix: Fraction(1024) ** power for power, suffix in enumerate(("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))
}
_DECIMAL = {
    suffix: Fraction(1000) ** power
    for power, suffix in enumerate(("n", "u", "m", "", "k", "M", "G", "T", "P", "E"), start=-3)
}
_LARGEST_EXPONENT = 100
"""A larger one makes no sense, and computing it could take forever."""


@functools.total_ordering
class Quantity:
    """An amount of CPU, memory or storage, as Kubernetes writes it.

    >>> Quantity("1Gi") + Quantity("512Mi")
    Quantity('1536Mi')
    >>> Quantity("1") == Quantity("1000m")
    True
    """

    __slots__ = ("_binary", "_text", "_value")

    def __init__(self, value: str | int | float | Fraction) -> None:
        self._binary = False
        if isinstance(value, str):
            self._value, self._binary = _parse(value)
            self._text = value
        else:
            self._value = _exact(value)
            self._text = _format(self._value, binary=False)

    @property
    def value(self) -> Fraction:
        """The exact amount in base units: cores, bytes, items."""
        return self._value

    @property
    def binary(self) -> bool:
        """True if the suffix is a power of 1024."""
        return self._binary

    def _of(self, value: Fraction, other: Quantity | str | float = 0) -> Quantity:
        """Return a result with the suffixes of the left operand, or of the other one if the left is zero."""
        family = self if self._value or not isinstance(other, Quantity) else other
        return Quantity(_format(value, binary=family.binary))

    def __add__(self, other: Quantity | str | float) -> Quantity:
        return self._of(self._value + _amount(other), other)

    def __sub__(self, other: Quantity | str | float) -> Quantity:
        return self._of(self._value - _amount(other), other)

    def __mul__(self, factor: float | Fraction) -> Quantity:
        return self._of(self._value * _exact(factor))

    __rmul__ = __mul__

    def __truediv__(self, divisor: float | Fraction) -> Quantity:
        return self._of(self._value / _exact(divisor))

    def __neg__(self) -> Quantity:
        return self._of(-self._value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (Quantity, str, int, float)):
            return NotImplemented
        try:
            return self._value == _amount(other)
        except ValueError:
            return False

    def __lt__(self, other: Quantity | str | float) -> bool:
        return self._value < _amount(other)

    def __hash__(self) -> int:
        return hash(self._value)

    def __int__(self) -> int:
        """Return the amount in base units, rounded up as Kubernetes does."""
        return math.ceil(self._value)

    def __float__(self) -> float:
        return float(self._value)

    def __bool__(self) -> bool:
        return self._value != 0

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Quantity({self._text!r})"

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        """Parse the value of a manifest: a string or a number."""
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            # msgspec adds the path of the field to a ValueError.
            raise ValueError(f"a quantity must be a string or a number, got {value!r}")  # noqa: TRY004
        return cls(value)

    def to_wire(self) -> str:
        """Return the value for a manifest: the original text."""
        return self._text

    @classmethod
    def openapi(cls) -> dict[str, Any]:
        """Return the schema for a CRD."""
        return {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": _PATTERN,
            "x-kubernetes-int-or-string": True,
        }


def _exact(number: float | Fraction) -> Fraction:
    """Return the number as written: 0.1 is a tenth, not the nearest binary fraction."""
    return Fraction(str(number))


def _amount(value: Quantity | str | float) -> Fraction:
    return value.value if isinstance(value, Quantity) else Quantity(value).value


def _parse(text: str) -> tuple[Fraction, bool]:
    """Return the amount, and whether its suffix is a power of 1024."""
    parts = _PARTS.fullmatch(text)
    if parts is None:
        raise ValueError(
            f"a quantity must be a number with an optional suffix, such as 500m or 2Gi; got {text!r}"
        )
    number, suffix, exponent = Fraction(parts[1]), parts[2] or "", parts[3]
    if exponent is not None:
        if abs(int(exponent)) > _LARGEST_EXPONENT:
            raise ValueError(f"the exponent of a quantity must be at most {_LARGEST_EXPONENT}; got {text!r}")
        return number * Fraction(10) ** int(exponent), False
    if suffix in _DECIMAL:
        return number * _DECIMAL[suffix], False
    return number * _BINARY[suffix], True


def _format(value: Fraction, *, binary: bool) -> str:
    """Return the canonical form: no fraction, the largest suffix; below a nano rounded away from zero."""
    nanos = math.ceil(abs(value) / _DECIMAL["n"])
    magnitude, sign = nanos * _DECIMAL["n"], "-" if value < 0 else ""
    if magnitude == 0:
        return "0"
    scales = _BINARY if binary and magnitude.denominator == 1 else _DECIMAL
    for suffix, scale in reversed(scales.items()):
        scaled = magnitude / scale
        if scaled.denominator == 1:
            return f"{sign}{scaled.numerator}{suffix}"
    raise AssertionError("a whole number of nanos always has a form")
