"""The chart repository and the webhooks of all operators, in their own process.

`python -m bench.fleet.repository_process OPERATORS INSTALLED` prints a line of JSON with the addresses, and ends with
its standard input.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import sys

import msgspec
from aiohttp import web

from bench.fleet.charts import FIRST_VERSION, UPGRADES, WebhookAddress, operator_chart
from bench.fleet.child_process import announce
from bench.fleet.size import operator_name
from kapsa.adapters.testing.chart_server import ChartServer
from kapsa.adapters.testing.loopback_tls import loopback_tls


class RepositoryAddresses(msgspec.Struct, frozen=True):
    """The addresses of the services."""

    repository: str
    webhook: WebhookAddress


async def serve(operators: int, installed: int) -> None:
    """Serve until the standard input ends. Operators that are installed have versions to upgrade to."""
    async with contextlib.AsyncExitStack() as stack:
        webhook = await serve_webhooks(stack)
        repository = stack.enter_context(ChartServer())
        for number in range(operators):
            for version in (FIRST_VERSION, *(UPGRADES if number < installed else ())):
                repository.add(operator_chart(operator_name(number), version, webhook))
        await announce(RepositoryAddresses(repository.url, webhook))


async def serve_webhooks(stack: contextlib.AsyncExitStack) -> WebhookAddress:
    """Start a server that admits every object, and return its address."""

    async def admit(request: web.Request) -> web.Response:
        review = await request.json()
        answer = {"uid": review["request"]["uid"], "allowed": True}
        return web.json_response({**review, "request": None, "response": answer})

    application = web.Application()
    application.router.add_post("/", admit)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    context, authority = loopback_tls("webhooks of the benchmark")
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    bundle = base64.b64encode(authority.encode()).decode()
    return WebhookAddress(f"https://127.0.0.1:{runner.addresses[0][1]}/", bundle)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2])))
