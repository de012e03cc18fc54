"""The values that expressions compute with: equality, order, and the types that Python lacks.

`bool`, `int`, `float`, `str`, `bytes`, `None`, `list` and `dict` are themselves.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, ClassVar

import msgspec

from kapsa.schemas.cel.language.syntax import UInt

__all__ = [
    "NO_OVERLOAD",
    "CelDuration",
    "CelEvaluationError",
    "LazyFields",
    "MapList",
    "MessageValue",
    "Opaque",
    "Optional",
    "SetList",
    "Timestamp",
    "TypeValue",
    "compare",
    "equals",
    "format_double",
    "is_zero",
    "size_of",
    "type_name",
]

_SECOND = 1_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = -62135596800 * _SECOND, 253402300800 * _SECOND - 1
_RFC3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:[.,](\d+))?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)
_DURATION_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": _SECOND, "m": 60 * _SECOND}
_UNITS["h"] = 3600 * _SECOND
_PLAIN = frozenset({str, int, bool, float, bytes})
_NUMBERS = frozenset({int, float, UInt})
_SIZED = frozenset({str, bytes, list, dict})
NO_OVERLOAD = "no such overload"


class CelEvaluationError(ValueError):
    """An expression that failed on a value; the text is that of cel-go, kube-apiserver's evaluator."""


class CelDuration(msgspec.Struct, frozen=True, order=True):
    """A length of time in nanoseconds."""

    nanoseconds: int
    type_name: ClassVar[str] = "google.protobuf.Duration"

    @classmethod
    def parse(cls, text: str) -> CelDuration:
        """Parse Go's notation, such as `1h30m`. Raises ValueError if it is not a duration."""
        body = text[1:] if text[:1] in ("-", "+") else text
        if body == "0":
            return cls(0)
        parts = _DURATION_PART.findall(body)
        if not parts or "".join(number + unit for number, unit in parts) != body:
            raise ValueError(f'time: invalid duration "{text}"')
        total = 0
        for number, unit in parts:
            whole, _, fraction = number.partition(".")
            total += int(whole or "0") * _UNITS[unit]
            total += int(fraction or "0") * _UNITS[unit] // 10 ** len(fraction)
        if total >= 1 << 63:
            raise ValueError(f'time: invalid duration "{text}"')
        return cls(-total if text.startswith("-") else total)

    def __str__(self) -> str:
        seconds = format_plain(self.nanoseconds / _SECOND)
        return f"{seconds}s"


class Timestamp(msgspec.Struct, frozen=True, order=True):
    """A time in nanoseconds since 1970."""

    nanoseconds: int
    type_name: ClassVar[str] = "google.protobuf.Timestamp"

    @classmethod
    def parse(cls, text: str) -> Timestamp:
        """Parse RFC 3339. Raises ValueError if the text is not a time."""
        match = _RFC3339.fullmatch(text)
        if match is None:
            raise ValueError(f"not a timestamp: {text}")
        *parts, fraction, zone = match.groups()
        moment = datetime(*(int(part) for part in parts), tzinfo=UTC)  # type: ignore[misc,arg-type]  # six numbers
        offset = 0
        if zone not in ("Z", "z"):
            offset = int(zone[1:3]) * 3600 + int(zone[4:6]) * 60
            offset = -offset if zone[0] == "-" else offset
        seconds = int((moment - _EPOCH).total_seconds()) - offset
        return cls(seconds * _SECOND + int((fraction or "0")[:9].ljust(9, "0")))

    def datetime(self) -> datetime:
        """Return the time in UTC, to the microsecond."""
        return _EPOCH + timedelta(microseconds=self.nanoseconds // 1000)

    def checked(self) -> Timestamp:
        """Return the time itself. Raises CelEvaluationError if it is not in the years 1 to 9999."""
        if not _FIRST <= self.nanoseconds <= _LAST:
            raise CelEvaluationError("timestamp overflow")
        return self

    def __str__(self) -> str:
        fraction = f"{self.nanoseconds % _SECOND:09d}".rstrip("0")
        text = self.datetime().strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")
        return f"{text}.{fraction}Z" if fraction else f"{text}Z"


class Optional:
    """A value or nothing."""

    __slots__ = ("given", "value")
    type_name = "optional_type"

    def __init__(self, value: Any = None, *, given: bool = True) -> None:
        self.value = value
        self.given = given

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Optional) or self.given != other.given:
            return False
        return not self.given or equals(self.value, other.value)

    __hash__ = None  # type: ignore[assignment]  # values may be lists


NONE = Optional(given=False)


class TypeValue(msgspec.Struct, frozen=True):
    """A type as a value: the result of `type(x)`."""

    name: str
    type_name: ClassVar[str] = "type"


class Opaque:
    """The base of Kubernetes' own types: quantities, addresses, URLs, versions and formats."""

    __slots__ = ()
    type_name: ClassVar[str] = ""


class SetList(list[Any]):
    """A list of type set: the order of its elements does not matter, and `+` adds those that are new."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, list) or len(self) != len(other):
            return False
        return all(item in self for item in other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def plus(self, other: Sequence[Any]) -> SetList:
        """Return the union."""
        union = SetList(self)
        union.extend(item for item in other if item not in self)
        return union


class MapList(list[Any]):
    """A list of type map: its elements are identified by their keys."""

    __slots__ = ("keys",)

    def __init__(self, items: Sequence[Any], keys: tuple[str, ...]) -> None:
        super().__init__(items)
        self.keys = keys

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, list) or len(self) != len(other):
            return False
        by_key = {self._key(item): item for item in self}
        return all(self._key(item) in by_key and by_key[self._key(item)] == item for item in other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def _key(self, item: Any) -> str:
        return repr([item.get(key) for key in self.keys]) if isinstance(item, dict) else repr(item)

    def plus(self, other: Sequence[Any]) -> MapList:
        """Return the elements of both lists; those of `other` replace the ones with the same keys."""
        merged = {self._key(item): item for item in self}
        merged.update((self._key(item), item) for item in other)
        return MapList(list(merged.values()), self.keys)


class MessageValue(dict[str, Any]):
    """An object that an expression constructs, such as `Object.spec{replicas: 1}`."""

    __slots__ = ("type_name",)

    def __init__(self, type_name: str) -> None:
        super().__init__()
        self.type_name = type_name

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, MessageValue)
            and self.type_name == other.type_name
            and self.keys() == other.keys()
            and all(equals(value, other[key]) for key, value in self.items())
        )

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None


class LazyFields(dict[str, Any]):
    """An object whose fields are computed when an expression first reads them. A field may be null."""

    __slots__ = ("_compute",)

    def __init__(self, compute: Callable[[str], Any]) -> None:
        super().__init__()
        self._compute = compute

    def get(self, key: str, default: Any = None) -> Any:
        if key not in self:
            self[key] = self._compute(key)
        return self[key]


def type_name(value: Any) -> str:
    """Return the name of a value's type, as `type(value)` and errors show it."""
    named = _NAMES.get(type(value))
    if named is not None:
        return named
    if isinstance(value, list):
        return "list"
    if isinstance(value, dict) and not isinstance(value, MessageValue):
        return "map"
    return str(value.type_name)


_NAMES = {
    bool: "bool",
    int: "int",
    UInt: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null_type",
    list: "list",
    dict: "map",
}


def equals(one: Any, other: Any) -> bool:
    """Compare two values: numbers by their value, everything else also by type."""
    kind, other_kind = type(one), type(other)
    if kind is other_kind and kind in _PLAIN:
        return bool(one == other)
    if kind is bool or other_kind is bool:
        return False
    if isinstance(other, Opaque) and not isinstance(one, Opaque):
        return False
    if kind is list and other_kind in (SetList, MapList):
        # The list on the left decides how the elements are compared.
        return len(one) == len(other) and all(map(equals, one, other))
    return bool(one == other)


def compare(one: Any, other: Any) -> int:
    """Return -1, 0 or 1. Raises CelEvaluationError if the values have no common order."""
    kind, other_kind = type(one), type(other)
    if kind in _NUMBERS and other_kind in _NUMBERS:
        if math.isnan(one) or math.isnan(other):
            raise CelEvaluationError("NaN values cannot be ordered")
    elif kind is not other_kind or not (kind in _PLAIN or kind in (CelDuration, Timestamp)):
        raise CelEvaluationError(NO_OVERLOAD)
    return int(one > other) - int(one < other)


def size_of(value: Any) -> int:
    """Return the size that costs are computed from, 1 for values without a size."""
    kind = type(value)
    if kind in _SIZED:
        return len(value)
    if kind in _NUMBERS:
        return 1
    if isinstance(value, (str, bytes, list, dict)):
        return len(value)
    if isinstance(value, Optional) and value.given:
        return size_of(value.value)
    size = getattr(value, "size", None)
    return size if isinstance(size, int) else 1


def is_zero(value: Any) -> bool:
    """Return whether a value is the zero value of its type."""
    if isinstance(value, CelDuration):
        return value.nanoseconds == 0
    if isinstance(value, Optional):
        return not value.given or is_zero(value.value)
    if isinstance(value, (Opaque, TypeValue, Timestamp)):
        return False
    return not value


def format_double(value: float) -> str:
    """Format a double with Go's `%g`: the shortest digits, with an exponent below 1e-4 and from 1e+06 on."""
    if math.isinf(value) or math.isnan(value):
        return "NaN" if math.isnan(value) else ("+Inf" if value > 0 else "-Inf")
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    digits, power = _digits(abs(value))
    if -4 <= power < 6:
        return format_plain(value)
    sign = "-" if value < 0 else ""
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{fraction}e{'-' if power < 0 else '+'}{abs(power):02d}"


def _digits(value: float) -> tuple[str, int]:
    """Return the shortest digits of a positive number, and the power of ten of the first one."""
    _, digits, exponent = Decimal(repr(value)).as_tuple()
    text = "".join(map(str, digits))
    return text.rstrip("0"), int(exponent) + len(text) - 1


def format_plain(value: float) -> str:
    """Format a double without an exponent, with the shortest digits."""
    if math.isinf(value) or math.isnan(value):
        return format_double(value)
    if value == int(value):
        return str(int(value))
    text = repr(value)
    if "e" not in text:
        return text
    mantissa, _, exponent = text.partition("e")
    places = len(mantissa.partition(".")[2]) - int(exponent)
    return f"{value:.{max(places, 0)}f}"
