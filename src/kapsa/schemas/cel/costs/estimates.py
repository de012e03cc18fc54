"""Ranges of sizes and costs, with the arithmetic of 64 bit integers that stop at their maximum."""

from __future__ import annotations

import math
from typing import NamedTuple

__all__ = ["FREE", "MAX", "ONE", "UNKNOWN", "CallEstimate", "EntrySizes", "Range", "fixed", "times"]

MAX = (1 << 64) - 1


def times(value: int, factor: float) -> int:
    """Multiply by a factor, rounded up."""
    product = float(value) * factor
    return MAX if product >= float(1 << 64) else math.ceil(product)


class Range(NamedTuple):
    """The least and the most that a size or a cost can be."""

    least: int
    most: int

    def plus(self, other: Range) -> Range:
        return Range(min(self.least + other.least, MAX), min(self.most + other.most, MAX))

    def multiplied(self, other: Range) -> Range:
        return Range(min(self.least * other.least, MAX), min(self.most * other.most, MAX))

    def scaled(self, factor: float) -> Range:
        return Range(times(self.least, factor), times(self.most, factor))

    def union(self, other: Range) -> Range:
        return Range(min(self.least, other.least), max(self.most, other.most))


UNKNOWN = Range(0, MAX)
FREE, ONE = Range(0, 0), Range(1, 1)


def fixed(value: int) -> Range:
    """Return the range of one value."""
    return Range(value, value)


class EntrySizes(NamedTuple):
    """The sizes of the keys and values of a list or map."""

    is_list: bool
    key: Range
    value: Range

    def union(self, other: EntrySizes | None) -> EntrySizes | None:
        if other is None:
            return None
        return EntrySizes(self.is_list, self.key.union(other.key), self.value.union(other.value))


class CallEstimate(NamedTuple):
    """The cost of a call, and the size of its result if it is known."""

    cost: Range
    size: Range | None = None
