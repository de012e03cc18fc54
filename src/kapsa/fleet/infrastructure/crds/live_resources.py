"""Live resources: the CRDs and custom resources of clusters, read with the runtime's client."""

import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any

from kapsa.fleet.domain.crds import parse_crd
from kapsa.fleet.domain.errors import DomainError
from kapsa.fleet.orchestrator.ports.clusters import ClusterUnreachable
from kapsa.fleet.orchestrator.ports.crds import ResourcesUnreadable
from kapsa.runtime import Client, ClientError, NotFound, UnknownKind

__all__ = ["ClusterResources"]

_DEFINITIONS = "apiextensions.k8s.io/v1/CustomResourceDefinition"
_PAGE = 500
_LONGEST_REASON = 300


class ClusterResources:
    """The CRDs and custom resources of clusters. Nothing is kept: each page is read when it is asked for."""

    def __init__(
        self, client: Callable[[uuid.UUID], AbstractAsyncContextManager[Client]], *, page_size: int = _PAGE
    ) -> None:
        self._client = client
        self._page_size = page_size

    async def definition(self, cluster_id: uuid.UUID, name: str) -> Mapping[str, Any] | None:
        """Return a CRD with its status, None if the cluster does not have it."""
        with _reported():
            async with self._client(cluster_id) as client:
                try:
                    return await client.get(_DEFINITIONS, name)
                except NotFound:
                    return None

    async def pages(
        self, cluster_id: uuid.UUID, crd: Mapping[str, Any]
    ) -> AsyncIterator[Sequence[dict[str, Any]]]:
        """Yield all custom resources of a CRD that the cluster has, page by page, in its stored version."""
        definition = parse_crd(crd)
        version = definition.storage
        if not version.served:
            version = next((each for each in definition.spec.versions if each.served), version)
        kind = f"{definition.spec.group}/{version.name}/{definition.spec.names.kind}"
        with _reported():
            async with self._client(cluster_id) as client:
                async for page in client.pages(kind, limit=self._page_size):
                    yield page.items


@contextmanager
def _reported() -> Iterator[None]:
    """Turn an error of the cluster into one sentence for people."""
    try:
        yield
    except (ClientError, ClusterUnreachable, UnknownKind, DomainError, TimeoutError) as error:
        reason = str(error) or type(error).__name__
        raise ResourcesUnreadable(reason[:_LONGEST_REASON]) from error
