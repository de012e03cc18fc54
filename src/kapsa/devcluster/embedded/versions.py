"""One resource in its other API versions, as field managers that wrote through them saw it."""

from __future__ import annotations

from typing import Any

from .apply import Convert
from .registry import Registry, ResourceInfo
from .schema import Schema

__all__ = ["converter"]


def converter(registry: Registry, info: ResourceInfo) -> Convert:
    """From an object to the same object in another version, with that version's schema."""

    def convert(obj: dict[str, Any], api_version: str) -> tuple[dict[str, Any], Schema | None] | None:
        group, _, version = api_version.rpartition("/")
        other = registry.find(group, version, info.resource)
        if other is None or other.kind != info.kind:
            return None
        return {**obj, "apiVersion": api_version}, other.schema

    return convert
