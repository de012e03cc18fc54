"""A receiver of webhooks in memory."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from kapsa.adapters.testing._loopback_server import LoopbackServer

__all__ = ["WebhookReceiver"]


class WebhookReceiver(LoopbackServer):
    """A receiver on loopback. It answers with the given statuses one after the other, then with 204."""

    def __init__(self, *statuses: int) -> None:
        super().__init__()
        self._statuses = list(statuses)
        self.received: list[tuple[Mapping[str, str], bytes]] = []
        """Headers, by names in lower case, and body of each request."""

    async def respond(self, request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.received.append((headers, await request.read()))
        return web.Response(status=self._statuses.pop(0) if self._statuses else 204)
