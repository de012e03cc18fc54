"""An object in the API versions through which its field managers wrote it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kapsa.devcluster.embedded.apply.comparison import Comparison, compare
from kapsa.devcluster.embedded.apply.fieldset import Fields, recursive_difference
from kapsa.devcluster.embedded.apply.shape import Shape, shape_of
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo, ResourceRegistry
from kapsa.schemas.schema import Schema

__all__ = ["Convert", "Versions", "converter"]

Object = dict[str, Any]
Convert = Callable[[Object, str], tuple[Object, Schema | None] | None]
"""Returns the object in another API version, with that version's schema; None if it is no longer served."""


class Versions:
    """The shape of an object in a request's version, and its conversion to the versions of its managers."""

    __slots__ = ("_convert", "_skipped", "api_version", "reset", "shape")

    def __init__(
        self, api_version: str, schema: Schema | None, reset: Fields | None, convert: Convert | None
    ) -> None:
        self.api_version = api_version
        self.shape = shape_of(schema)
        self.reset = reset or {}
        """Fields that the endpoint always takes from the live object, so that they are not compared."""
        self._skipped = frozenset(key[2:] for key, node in self.reset.items() if not node)
        self._convert = convert

    def at(self, obj: Object, api_version: str) -> tuple[Object, Shape] | None:
        """Return the object in a version, and its shape there; None if the version is no longer served."""
        if self._convert is None or (api_version == self.api_version == obj.get("apiVersion", api_version)):
            return obj, self.shape
        converted = self._convert(obj, api_version)
        return None if converted is None else (converted[0], shape_of(converted[1]))

    def between(self, obj: Object, source: str, target: str) -> Object | None:
        """Convert the object from version `source` to version `target`."""
        if source == target or self._convert is None:
            return obj
        converted = self._convert(obj, target)
        return None if converted is None else converted[0]

    def compare(self, old: Object, new: Object, api_version: str) -> Comparison | None:
        """Compare two objects in one version. Return None if the version is no longer served."""
        before, after = self.at(old, api_version), self.at(new, api_version)
        if before is None or after is None:
            return None
        comparison = compare(before[0], after[0], before[1], skip=self._skipped)
        if len(self._skipped) == len(self.reset):
            return comparison
        return Comparison(*(recursive_difference(fields, self.reset) for fields in comparison))


def converter(registry: ResourceRegistry, info: ResourceInfo) -> Convert:
    """Return the conversion of a resource's objects to its other versions."""

    def convert(obj: Object, api_version: str) -> tuple[Object, Schema | None] | None:
        group, _, version = api_version.rpartition("/")
        other = registry.find(group, version, info.resource)
        if other is None or other.kind != info.kind:
            return None
        return {**obj, "apiVersion": api_version}, other.schema

    return convert
