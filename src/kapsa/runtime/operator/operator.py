"""The operator: a declaration that can be run.

operator = Operator(controllers=[MyAppController()], leader_election="my-operator-lock")

# kapsa run myapp:operator
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any

from kapsa.runtime.client.client import Client
from kapsa.runtime.operator.declaration import OperatorDeclaration
from kapsa.runtime.operator.lifecycle import RunningOperator
from kapsa.runtime.webhooks.webhooks import WebhookRoute

__all__ = ["Operator"]


class Operator(OperatorDeclaration):
    """The controllers and webhooks that run together in one process.

    It holds no state of a run: the same operator can run many times.
    """

    async def start(
        self,
        client: Client,
        *,
        identity: str = "",
        rng: random.Random | None = None,
        namespaces: Sequence[str] | None = None,
        serve: bool = True,
        webhook_route: WebhookRoute | None = None,
    ) -> RunningOperator:
        """Start in the running event loop, on the cluster and the clock of `client`.

        `serve=False` opens no port and checks no rights, which suits a simulation. With a `webhook_route` the
        webhooks are still served, through that route.
        """
        rng = rng or random.Random()  # noqa: S311 - spreads load and makes names unique
        identity = identity or f"{socket.gethostname()}_{rng.getrandbits(64):016x}"
        running = RunningOperator(
            self,
            client,
            identity=identity,
            rng=rng,
            namespaces=namespaces,
            serve=serve,
            webhook_route=webhook_route,
        )
        try:
            await running.start()
        except BaseException:
            await running.stop(grace=0)
            raise
        return running

    @contextlib.asynccontextmanager
    async def running(self, client: Client, **options: Any) -> AsyncIterator[RunningOperator]:
        """Run for the length of an `async with` block. The options are those of `start`."""
        run = await self.start(client, **options)
        try:
            yield run
        finally:
            await run.stop()

    async def serve(self, client: Client | None = None, **options: Any) -> RunningOperator:
        """Run until SIGTERM or SIGINT, then stop in order. Return the stopped run."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        try:
            async with (
                client or Client.connect(field_manager=self.field_manager) as connected,
                self.running(connected, **options) as run,
            ):
                await stop.wait()
            return run
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    def run(self, **options: Any) -> None:
        """Run as the only work of this process. Returns after SIGTERM or SIGINT."""
        run = asyncio.run
        with contextlib.suppress(
            ImportError
        ):  # left before the run: a traceback must not begin with this one
            import uvloop

            run = uvloop.run
        run(self._serve_and_exit(**options))

    async def _serve_and_exit(self, **options: Any) -> None:
        """Run, and end the process at once if a run ignores its cancellation: the loop would wait for it."""
        stopped = await self.serve(**options)
        if stopped.stuck:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            os._exit(1)
