"""The right to create: an update or apply that creates its object needs it, too."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.authorization.authorizer import Authorizer, check
from kapsa.devcluster.embedded.requests.mutations import DeleteRequest, WriteRequest
from kapsa.devcluster.embedded.requests.parameters import WriteMethod
from kapsa.devcluster.wire.authorization import AccessAttributes

__all__ = ["CreationCheck"]

Object = dict[str, Any]


class CreationCheck:
    """A check that rejects an update or apply that would create an object, unless its user may create it."""

    resources: frozenset[tuple[str, str]] | None = None

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def mutate(self, write: WriteRequest, obj: Object, old: Object | None) -> Object:
        return obj

    async def validate(self, write: WriteRequest, obj: Object, old: Object | None) -> None:
        if old is not None or write.method is WriteMethod.CREATE or self._authorizer.trusts(write.user):
            return
        info = write.info
        asked = AccessAttributes(
            user=write.user,
            verb="create",
            group=info.group,
            version=info.version,
            resource=info.resource,
            namespace=write.namespace,
            name=write.name,
        )
        check(self._authorizer, asked)

    async def validate_deletion(self, deletion: DeleteRequest, obj: Object) -> None:
        return
