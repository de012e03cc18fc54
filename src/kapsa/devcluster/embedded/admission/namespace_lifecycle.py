"""Admission by the state of the namespace: rejects creates in one that is missing or terminating."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.codec.stored_form import decode
from kapsa.devcluster.embedded.requests.mutations import DeleteRequest, WriteRequest
from kapsa.devcluster.wire import status_errors as errors
from kapsa.devcluster.wire.status_errors import ErrorCause

__all__ = ["NamespaceLifecycle"]

Object = dict[str, Any]
_IMMORTAL = ("default", "kube-system", "kube-public")


class NamespaceLifecycle:
    """The NamespaceLifecycle plugin of the real server."""

    resources: frozenset[tuple[str, str]] | None = None

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._namespaces = backend.registry.get("", "v1", "namespaces")
        self._collection = backend.collection(self._namespaces)

    async def mutate(self, write: WriteRequest, obj: Object, old: Object | None) -> Object:
        if old is None and write.info.namespaced:
            self._check_open(write)
        return obj

    async def validate(self, write: WriteRequest, obj: Object, old: Object | None) -> None:
        return

    async def validate_deletion(self, deletion: DeleteRequest, obj: Object) -> None:
        if deletion.info is self._namespaces and deletion.name in _IMMORTAL:
            raise errors.forbidden(self._namespaces, deletion.name, "this namespace may not be deleted")

    def _check_open(self, write: WriteRequest) -> None:
        stored = self._collection.get(write.namespace)
        if stored is None:
            raise errors.not_found(self._namespaces, write.namespace)
        # Without decoding: each create passes here, and few namespaces are terminating.
        if b'"deletionTimestamp":"' not in stored.body:
            return
        namespace = decode(stored)
        if namespace["metadata"].get("deletionTimestamp"):
            name = write.namespace
            why = f"unable to create new content in namespace {name} because it is being terminated"
            cause = ErrorCause(
                "metadata.namespace", "NamespaceTerminating", f"namespace {name} is being terminated"
            )
            raise errors.forbidden(write.info, write.name, why, causes=[cause])
