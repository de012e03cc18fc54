"""The limits of the webhook port against slow, silent and hostile clients."""

import asyncio
from typing import Any

import pytest

from kapsa.runtime.client.auth.tls import client_context
from tests.runtime.webhooks.webhook_server import (
    VALIDATE,
    AppValidator,
    OldAppConverter,
    RunningServer,
    app,
    running,
    webhooks,
)


async def connect(run: RunningServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    tls = client_context(ca=await run.bundle())
    return await asyncio.open_connection("127.0.0.1", run.server.port, ssl=tls)


def post(path: str, length: int) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode()


@pytest.mark.parametrize(
    ("path", "counted"),
    [
        (f"{VALIDATE}?timeout=10s", [("validate-app.example.com", "late")]),
        ("/convert", [("convert", "late")]),
        ("/nowhere", []),
    ],
)
async def test_a_request_that_does_not_arrive_in_time_is_rejected_and_counted(
    path: str, counted: list[Any]
) -> None:
    declared = webhooks(AppValidator(), converters=[OldAppConverter()], body_timeout=0.2)
    async with asyncio.timeout(10), running(declared) as run:
        reader, writer = await connect(run)
        writer.write(post(path, 1000) + b"{")
        response = await reader.read()  # to the end: the server closes the connection
        assert response.startswith(b"HTTP/1.1 408 ")
        assert response.endswith(b"request body did not arrive within 0.2 s")
        assert run.seen == counted
        writer.close()


@pytest.mark.parametrize("sent", [b"", f"POST {VALIDATE} HTTP/1.1\r\nHost:".encode()])
async def test_a_connection_without_a_complete_request_is_closed(sent: bytes) -> None:
    async with asyncio.timeout(10), running(webhooks(AppValidator(), idle_timeout=0.2)) as run:
        reader, writer = await connect(run)
        writer.write(sent)
        assert await reader.read() == b""
        writer.close()


async def test_idle_connections_do_not_lock_out_the_api_server() -> None:
    async with asyncio.timeout(10), running(webhooks(AppValidator(), max_connections=2)) as run:
        callers = [await connect(run) for _ in range(4)]
        for reader, _ in callers[:2]:
            assert await reader.read() == b""
        assert (await run.admit(VALIDATE, app()))["allowed"]
        for _, writer in callers:
            writer.transport.abort()
