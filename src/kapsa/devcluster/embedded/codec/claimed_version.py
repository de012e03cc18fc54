"""Custom resources that name another version than the path does."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.schemas.schema import TYPE_AND_OBJECT_META, Schema
from kapsa.schemas.validation import unknown_fields

__all__ = ["unknown_in_its_version"]

_NOTHING = Schema(type="object", properties=dict(TYPE_AND_OBJECT_META))
"""A version that the definition does not have knows no fields."""


def unknown_in_its_version(info: ResourceInfo, obj: dict[str, Any]) -> list[str]:
    """The fields that the version an object names does not know; none if it is the path's version.

    The real server reads an object as what it says it is before it refuses it for that.
    """
    group, _, version = (obj.get("apiVersion") or "").rpartition("/")
    if (group, obj.get("kind")) != (info.group, info.kind) or version == info.version:
        return []
    versions = (info.definition or {}).get("spec", {}).get("versions", ())
    written = next((each.get("schema") for each in versions if each["name"] == version), None)
    schema = _NOTHING if written is None else Schema.from_crd(written.get("openAPIV3Schema"))
    return unknown_fields(schema, obj)
