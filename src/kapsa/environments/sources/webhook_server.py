"""The HTTP server of git webhooks: one path, with limits on size and time."""

from __future__ import annotations

import asyncio

from aiohttp import web

from kapsa.environments.sources.git_webhook import BODY_LIMIT, GitWebhook

__all__ = ["PATH", "GitWebhookServer"]

PATH = "/hooks/git"
_READ_SECONDS = 10.0


class GitWebhookServer:
    """A server of webhooks."""

    def __init__(self, webhook: GitWebhook, *, host: str, port: int) -> None:
        self._webhook = webhook
        self._host = host
        self._requested_port = port
        self._runner: web.AppRunner | None = None

    @property
    def port(self) -> int:
        """The port it listens on; 0 while it is stopped."""
        addresses = self._runner.addresses if self._runner is not None else []
        return int(addresses[0][1]) if addresses else 0

    async def start(self) -> None:
        app = web.Application(client_max_size=BODY_LIMIT)
        app.router.add_post(PATH, self._receive)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=5.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._requested_port).start()

    async def stop(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _receive(self, request: web.Request) -> web.Response:
        try:
            async with asyncio.timeout(_READ_SECONDS):
                body = await request.read()
        except TimeoutError:
            return web.Response(status=408, text="the body took too long to arrive")
        verdict = await self._webhook.receive(request.headers, body)
        return web.Response(status=verdict.status, text=verdict.text)
