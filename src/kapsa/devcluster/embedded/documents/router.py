"""The paths that are not resources: health, version, metrics, discovery, OpenAPI."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from kapsa.devcluster.embedded.authentication.tokens import Tokens
from kapsa.devcluster.embedded.documents import health, issuer
from kapsa.devcluster.embedded.documents.discovery import DiscoveryDocuments
from kapsa.devcluster.embedded.documents.metrics import RequestMetrics, metrics
from kapsa.devcluster.embedded.kinds.registry import ResourceRegistry
from kapsa.devcluster.embedded.storage.store import ObjectStore
from kapsa.devcluster.wire import status_errors as errors
from kapsa.devcluster.wire.exchange import Reply, Request

if TYPE_CHECKING:
    from kapsa.devcluster.embedded.documents.openapi import OpenApi

__all__ = ["Documents"]


class Documents:
    """The router for requests about the server itself."""

    def __init__(
        self, registry: ResourceRegistry, tokens: Tokens, requests: RequestMetrics, store: ObjectStore
    ) -> None:
        self._registry = registry
        self._requests = requests
        self._store = store
        self._tokens = tokens
        self._discovery = DiscoveryDocuments(registry)

    @cached_property
    def _open_api(self) -> OpenApi:
        # Few clients request these documents, so the import must not slow down the start of the server.
        from kapsa.devcluster.embedded.documents.openapi import OpenApi

        return OpenApi(self._registry)

    def answer(self, request: Request) -> Reply:
        """Serve a request whose path is not a resource.

        Raises StatusError or PlainError with 404, in the form that kube-apiserver uses for the path.
        """
        if request.path.startswith("//"):
            raise errors.page_not_found()
        if request.method not in ("GET", "HEAD") and self._is_read_only(request.path):
            raise errors.method_not_allowed()
        reply = (
            health.health(request)
            or health.version(request)
            or health.paths(request, self._registry)
            or metrics(request, self._requests, self._store)
            or self._discovery.answer(request)
            or issuer.answer(request, self._tokens)
            or (self._open_api.answer(request) if request.path.startswith("/openapi/") else None)
        )
        if reply is not None:
            return reply
        parts = request.path.strip("/").split("/")
        if parts[0] == "api" or (
            parts[0] == "apis" and len(parts) > 2 and parts[1] and parts[1] in self._registry.groups()
        ):
            raise errors.resource_not_found()
        raise errors.page_not_found()

    def _is_read_only(self, path: str) -> bool:
        """Return whether kube-apiserver serves only reads at this path."""
        match path.strip("/").split("/"):
            case ["version"] | ["api"]:
                return True
            case ["api", version]:
                return self._registry.has_group_version("", version)
            case ["apis", group, version]:
                return self._registry.has_group_version(group, version)
        return False
