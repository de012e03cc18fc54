"""Manifests of children, completed for a request from dicts, YAML, resources or structs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from typing import Any

import msgspec

from kapsa.runtime.client.discovery import Discovery
from kapsa.runtime.resources.api_resource import resource_of
from kapsa.runtime.resources.kind import Kind, kind_of
from kapsa.runtime.resources.metadata import GroupVersionKind
from kapsa.runtime.resources.model import encode_extension
from kapsa.runtime.resources.resource import CustomResource
from kapsa.runtime.resources.stored_object import Key, StoredObject

__all__ = ["ChildManifests", "uid_of"]


class ChildManifests:
    """The manifests of one controller's children, completed by namespace and owner reference."""

    def __init__(self, owner: GroupVersionKind, discovery: Discovery, declared: Iterable[Kind]) -> None:
        self._owner = owner
        self._discovery = discovery
        resources = (resource_of(kind) for kind in declared)
        self._namespaced = {each.gvk: each.namespaced for each in resources if each is not None}

    async def complete(
        self, child: Any, owner: StoredObject, *, owned: bool, named: bool = True
    ) -> tuple[GroupVersionKind, Key, dict[str, Any]]:
        """Return a child's kind, key and manifest.

        It goes to its owner's namespace unless it names another.
        """
        manifest = _manifest_of(child)
        gvk = GroupVersionKind.of(manifest)
        metadata = dict(manifest.get("metadata") or {})
        if named and not metadata.get("name"):
            raise ValueError(f"{gvk.kind} cannot be applied: set metadata.name")
        if not await self._is_namespaced(gvk):
            metadata.pop("namespace", None)
        elif not metadata.get("namespace"):
            namespace = owner.key.namespace
            if not namespace:
                raise ValueError(
                    f"{gvk.kind} {metadata.get('name')} needs metadata.namespace: its owner {self._owner.kind} "
                    f"{owner.key} is cluster-scoped"
                )
            metadata["namespace"] = namespace
        key = Key(metadata.get("namespace", ""), metadata.get("name", ""))
        if owned:
            metadata["ownerReferences"] = [self._owner_reference(owner, gvk, key)]
        manifest["metadata"] = metadata
        return gvk, key, manifest

    async def _is_namespaced(self, gvk: GroupVersionKind) -> bool:
        namespaced = self._namespaced.get(gvk)
        if namespaced is None:
            namespaced = self._namespaced[gvk] = (await self._discovery.resource(gvk)).namespaced
        return namespaced

    def _owner_reference(self, owner: StoredObject, child: GroupVersionKind, key: Key) -> dict[str, Any]:
        if owner.key.namespace not in ("", key.namespace):
            raise ValueError(
                f"{child.kind} {key} cannot be owned by {self._owner.kind} {owner.key}: an owner must be in the same "
                "namespace or cluster-scoped. Pass owner=False and clean up in finalize()."
            )
        return {
            "apiVersion": self._owner.api_version,
            "kind": self._owner.kind,
            "name": owner.key.name,
            "uid": owner.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }


def _manifest_of(child: Any) -> dict[str, Any]:
    """Return a child as a new dict, whichever form it has."""
    if isinstance(child, Mapping):
        return dict(child)
    if isinstance(child, str):
        import yaml  # late: most operators build their children in Python and never need it

        loaded = yaml.load(child, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe loaders
        if not isinstance(loaded, dict):
            raise TypeError(f"YAML of a child must be one object, got {type(loaded).__name__}")
        return loaded
    if isinstance(child, CustomResource):
        manifest = child.to_dict()
        manifest.pop("status", None)
        return manifest
    if not isinstance(child, msgspec.Struct) and not is_dataclass(child):
        raise TypeError(
            f"child must be a dict, YAML text, a resource or a struct, got {type(child).__name__}"
        )
    manifest = _without_none(msgspec.to_builtins(child, enc_hook=encode_extension))
    if "apiVersion" not in manifest or "kind" not in manifest:
        gvk = kind_of(type(child))
        manifest = {"apiVersion": gvk.api_version, "kind": gvk.kind, **manifest}
    return manifest


def _without_none(value: Any) -> Any:
    """Remove the fields that are None: structs of generated models write every field, set or not."""
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_none(item) for item in value]
    return value


def uid_of(target: Any) -> str:
    """Return the UID of an object in any form; empty if it has none."""
    if isinstance(target, Mapping):
        uid = (target.get("metadata") or {}).get("uid")
    else:
        uid = getattr(getattr(target, "metadata", None), "uid", None)
    return uid or ""
