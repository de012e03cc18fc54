"""An object as the field managers see it that wrote through its different API versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .comparison import Comparison, compare
from .fieldset import Fields, recursive_difference
from .registry import Registry, ResourceInfo
from .schema import Schema
from .shape import Shape, shape_of

__all__ = ["Convert", "Versions", "converter"]

Object = dict[str, Any]
Convert = Callable[[Object, str], tuple[Object, Schema | None] | None]
"""The object in another API version, with that version's schema; None if the version is not served any more."""


class Versions(NamedTuple):
    """The object's shape here, and how it looks to managers that wrote it in another version."""

    api_version: str
    schema: Schema | None
    reset: Fields
    convert: Convert | None

    @property
    def shape(self) -> Shape:
        return shape_of(self.schema)

    def at(self, obj: Object, api_version: str) -> tuple[Object, Shape] | None:
        if api_version == self.api_version or self.convert is None:
            return obj, self.shape
        converted = self.convert(obj, api_version)
        return None if converted is None else (converted[0], shape_of(converted[1]))

    def compare(self, old: Object, new: Object, api_version: str) -> Comparison | None:
        """The comparison in one version, without the fields this endpoint resets anyway."""
        before, after = self.at(old, api_version), self.at(new, api_version)
        if before is None or after is None:
            return None
        skip = frozenset(key[2:] for key, node in self.reset.items() if not node)
        comparison = compare(before[0], after[0], before[1], skip=skip)
        if len(skip) == len(self.reset):
            return comparison
        return Comparison(*(recursive_difference(fields, self.reset) for fields in comparison))


def converter(registry: Registry, info: ResourceInfo) -> Convert:
    """From an object to the same object in another version, with that version's schema."""

    def convert(obj: Object, api_version: str) -> tuple[Object, Schema | None] | None:
        group, _, version = api_version.rpartition("/")
        other = registry.find(group, version, info.resource)
        if other is None or other.kind != info.kind:
            return None
        return {**obj, "apiVersion": api_version}, other.schema

    return convert
