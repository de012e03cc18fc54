"""The HTTP server under the servers for tests: on a free port of loopback, in a thread of its own."""

from __future__ import annotations

import base64
from contextlib import ExitStack
from typing import Self

from aiohttp import web

from kapsa.adapters.testing._received_request import ReceivedRequest
from kapsa.runtime.testing import background_loop

__all__ = ["LoopbackServer", "basic_login"]

_LARGEST_BODY = 64 * 1024 * 1024


class LoopbackServer:
    """A server that runs inside `with`. A subclass responds to its requests."""

    def __init__(self) -> None:
        self.requests: list[ReceivedRequest] = []
        self.port = 0
        self._stack = ExitStack()

    async def respond(self, request: web.Request) -> web.Response:
        """Return the response to a request."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        wait = self._stack.enter_context(background_loop())
        application = web.Application(client_max_size=_LARGEST_BODY)
        application.router.add_route("*", "/{path:.*}", self.respond)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        wait(runner.setup())
        wait(web.TCPSite(runner, "127.0.0.1", 0).start())
        self.port = runner.addresses[0][1]
        self._stack.callback(lambda: wait(runner.cleanup()))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def basic_login(name: str, password: str) -> str:
    """Return the Authorization header of a user name and a password."""
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()
