"""Children: the forms people write them in (dicts, YAML, resources, structs), and the reference to their owner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

import msgspec

from kapsa.runtime.resources.kind import kind_of
from kapsa.runtime.resources.metadata import GroupVersionKind
from kapsa.runtime.resources.resource import CustomResource
from kapsa.runtime.resources.stored_object import Key, StoredObject

__all__ = ["manifest_of", "owner_reference", "uid_of"]


def manifest_of(child: Any) -> dict[str, Any]:
    """A child as a dict of our own, whatever form it came in."""
    if isinstance(child, Mapping):
        return dict(child)
    if isinstance(child, str):
        import yaml  # late: most operators build their children in Python and never need it

        loaded = yaml.load(child, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe loaders
        if not isinstance(loaded, dict):
            raise TypeError(f"a child's YAML must be one object, not {type(loaded).__name__}")
        return loaded
    if isinstance(child, CustomResource):
        manifest = child.to_dict()
        manifest.pop("status", None)
        return manifest
    if not isinstance(child, msgspec.Struct) and not is_dataclass(child):
        raise TypeError(
            f"a child is a dict, YAML text, a resource or a struct, not {type(child).__name__}: {child!r}"
        )
    manifest = _without_none(msgspec.to_builtins(child))
    if "apiVersion" not in manifest or "kind" not in manifest:
        gvk = kind_of(type(child))
        manifest = {"apiVersion": gvk.api_version, "kind": gvk.kind, **manifest}
    return manifest


def _without_none(value: Any) -> Any:
    """Structs of generated models write every field they know; what is None was never set."""
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_none(item) for item in value]
    return value


def owner_reference(
    kind: GroupVersionKind, owner: StoredObject, child: GroupVersionKind, place: Key
) -> dict[str, Any]:
    """What a child at `place` carries to be owned and controlled by a resource of this kind."""
    if owner.namespace and owner.namespace != place.namespace:
        raise ValueError(
            f"{child.kind} {place} cannot be owned by {kind.kind} {owner.key}: an owner in a namespace owns only there. "
            "Pass owner=False and clean up in finalize()."
        )
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def uid_of(target: Any) -> str:
    if isinstance(target, Mapping):
        uid = (target.get("metadata") or {}).get("uid")
    else:
        uid = getattr(getattr(target, "metadata", None), "uid", None)
    return uid or ""
