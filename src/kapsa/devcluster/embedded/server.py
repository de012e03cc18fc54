"""The server's door: every request, from whichever side it comes, goes through :meth:`Server.handle`."""

from __future__ import annotations

import logging

from ..faults import FaultPlan
from . import errors, routes
from .backend import Backend
from .bootstrap import bootstrap
from .errors import ApiError, PlainError
from .exchange import Reply, Request
from .namespace_lifecycle import NamespaceLifecycle
from .requests import ResourceRequest
from .verbs import Verbs

__all__ = ["Server"]

log = logging.getLogger(__name__)


class Server:
    """One embedded API server."""

    def __init__(self, backend: Backend | None = None, *, faults: FaultPlan | None = None) -> None:
        self.backend = backend or Backend()
        self.faults = faults
        self.backend.admission.insert(0, NamespaceLifecycle(self.backend))
        self.verbs = Verbs(self.backend)
        """The same reads and writes for controllers in this process, with Python objects."""
        bootstrap(self.backend)

    async def handle(self, request: Request) -> Reply:
        """Answer one request. Never raises for what a client sends."""
        try:
            return await self._dispatch(request)
        except (ApiError, PlainError) as error:
            return error.reply()
        except RecursionError:
            return errors.bad_request("exceeded max depth").reply()
        except Exception as error:
            log.exception("request %s %s failed", request.method, request.path)
            return errors.internal(f"{type(error).__name__}: {error}").reply()

    async def _dispatch(self, request: Request) -> Reply:
        route = routes.parse(request.path)
        if route is None:
            raise errors.page_not_found()
        info = self.backend.registry.find(route.group, route.version, route.resource)
        if info is None:
            if self.backend.registry.has_group_version(route.group, route.version):
                raise errors.resource_not_found()
            raise errors.page_not_found()
        return await ResourceRequest(self.backend, request, route, info).answer()
