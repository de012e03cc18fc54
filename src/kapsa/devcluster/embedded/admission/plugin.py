"""The base of admission plugins, and the lookups and errors they share."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.codec.stored_form import decode
from kapsa.devcluster.embedded.requests.mutations import DeleteRequest, WriteRequest
from kapsa.devcluster.wire import status_errors as errors

__all__ = ["Object", "Plugin", "forbidden"]

Object = dict[str, Any]


class Plugin:
    """A plugin that admits everything. Subclasses override what they check or change."""

    resources: frozenset[tuple[str, str]] | None = None
    """Groups and names of the resources that the plugin is called for; None for every resource."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def mutate(self, write: WriteRequest, obj: Object, old: Object | None) -> Object:
        return obj

    async def validate(self, write: WriteRequest, obj: Object, old: Object | None) -> None:
        return

    async def validate_deletion(self, deletion: DeleteRequest, obj: Object) -> None:
        return

    def _objects(self, group: str, resource: str, namespace: str = "") -> list[Object]:
        """Return the stored objects of a built-in resource, of one namespace if it is given."""
        collection = self._backend.store.collection(group, resource)
        return [decode(stored) for stored in collection.current(f"{namespace}/" if namespace else "")]

    def _object(self, group: str, resource: str, key: str) -> Object | None:
        """Return a stored object of a built-in resource by its key, `name` or `namespace/name`."""
        stored = self._backend.store.collection(group, resource).get(key)
        return None if stored is None else decode(stored)


def forbidden(write: WriteRequest, obj: Object, why: str) -> errors.StatusError:
    """Return the error of a plugin that rejects a write; a name that is yet to be generated shows its prefix."""
    meta = obj["metadata"]
    name = write.name or meta.get("name") or meta.get("generateName") or "Unknown"
    return errors.forbidden(write.info, name, why)
