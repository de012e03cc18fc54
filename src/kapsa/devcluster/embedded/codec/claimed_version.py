"""Custom resources whose apiVersion differs from the path's version."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.schemas.schema import TYPE_AND_OBJECT_META, Schema
from kapsa.schemas.validation import unknown_fields

__all__ = ["unknown_in_its_version"]

_NOTHING = Schema(type="object", properties=dict(TYPE_AND_OBJECT_META))
"""A version without a definition has no fields."""


def unknown_in_its_version(info: ResourceInfo, obj: dict[str, Any]) -> list[str]:
    """Return the fields that are unknown in the version an object claims; none if that is the path's version.

    The real server decodes an object in the version it claims before it rejects the version.
    """
    group, _, version = (obj.get("apiVersion") or "").rpartition("/")
    if (group, obj.get("kind")) != (info.group, info.kind) or version == info.version:
        return []
    versions = (info.definition or {}).get("spec", {}).get("versions", ())
    written = next((each.get("schema") for each in versions if each["name"] == version), None)
    schema = _NOTHING if written is None else Schema.from_crd(written.get("openAPIV3Schema"))
    return unknown_fields(schema, obj)
