"""A program for a network namespace of its own: writes that are given up while the link is down.

It writes to its output, for each event loop and each scheme, the methods of the requests that the server received.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import uvloop

from kapsa.runtime import errors
from kapsa.runtime.client.auth.access import Authorization, StaticAccess
from kapsa.runtime.client.auth.tls import client_context
from kapsa.runtime.client.http.transport import HttpTransport
from kapsa.runtime.webhooks.certificates import CertificatePair, make_authority
from tests.runtime.client.servers import DAY, OK, pair_for, raw_server, read_request, server_tls

DEADLINE = 1.0
RETRANSMISSION = 4.0
"""Seconds after which the kernel has sent again what it kept of a request of `DEADLINE`."""


class Exchange:
    """A transport and its server, which records the methods of the requests."""

    def __init__(self, authority: CertificatePair | None) -> None:
        self.received: list[str] = []
        self._server_tls = server_tls(pair_for(authority, "127.0.0.1")) if authority is not None else None
        trust: ssl.SSLContext | bool = True
        if authority is not None:
            trust = client_context(ca=authority.certificate)
        self._authorization = Authorization(tls=trust)

    @contextlib.asynccontextmanager
    async def transport(self) -> AsyncIterator[HttpTransport]:
        async with raw_server(self._serve, tls=self._server_tls) as server:
            transport = HttpTransport(StaticAccess(server, self._authorization))
            await transport.request("GET", "/x")
            yield transport
            await transport.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            self.received.append((await read_request(reader)).partition(" ")[0])
            writer.write(OK)


def link(state: str) -> None:
    """Make the only link of the namespace work, or lose all packets."""
    subprocess.run(["ip", "link", "set", "lo", state], check=True)


async def give_up(transport: HttpTransport) -> None:
    """Send a write whose response does not arrive in time."""
    with contextlib.suppress(errors.NoResponse):
        await transport.request("POST", "/x", timeout=DEADLINE)


async def received() -> dict[str, list[str]]:
    """Return the methods that arrive by scheme if the link comes back after the writes were given up."""
    exchanges = {
        "http": Exchange(None),
        "https": Exchange(make_authority("t", now=datetime.now(UTC), lifetime=DAY)),
    }
    async with contextlib.AsyncExitStack() as stack:
        transports = [await stack.enter_async_context(each.transport()) for each in exchanges.values()]
        link("down")
        await asyncio.gather(*map(give_up, transports))
        link("up")
        await asyncio.sleep(RETRANSMISSION)
        for transport in transports:
            await transport.request("DELETE", "/x")
    return {scheme: each.received for scheme, each in exchanges.items()}


if __name__ == "__main__":
    link("up")
    loops = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    results = {}
    for name, factory in loops.items():
        with asyncio.Runner(loop_factory=factory) as runner:
            results[name] = runner.run(received())
    sys.stdout.write(json.dumps(results))
