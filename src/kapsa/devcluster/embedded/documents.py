"""Paths that name no resource: health, version, discovery, OpenAPI."""

from __future__ import annotations

from kapsa.devcluster.embedded import errors, health
from kapsa.devcluster.embedded.discovery import Discovery
from kapsa.devcluster.embedded.exchange import Reply, Request
from kapsa.devcluster.embedded.openapi import OpenApi
from kapsa.devcluster.embedded.registry import Registry

__all__ = ["Documents"]


class Documents:
    """Answers whatever is asked about the server itself."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._discovery = Discovery(registry)
        self._open_api = OpenApi(registry)

    def answer(self, request: Request) -> Reply:
        """The reply to a request that names no resource.

        :raises ApiError, PlainError: 404, in the form the real server gives it in.
        """
        reply = (
            health.health(request)
            or health.version(request)
            or health.paths(request, self._registry)
            or self._discovery.answer(request)
            or self._open_api.answer(request)
        )
        if reply is not None:
            return reply
        parts = request.path.strip("/").split("/")
        if parts[0] == "api" or (
            parts[0] == "apis" and len(parts) > 2 and parts[1] in self._registry.groups()
        ):
            raise errors.resource_not_found()
        raise errors.page_not_found()
