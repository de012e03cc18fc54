"""The probes and the metrics over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
from collections.abc import AsyncIterator

import aiohttp
import pytest

from kapsa.runtime import Operator, PortTakenError
from kapsa.runtime.telemetry.health import HealthCheckResult, HealthChecks, ProbeServer
from kapsa.runtime.telemetry.metrics import Metrics
from kapsa.runtime.testing import Harness
from tests.eventually import eventually
from tests.runtime.sample_app import App, Recorder


@pytest.fixture
async def web() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def fetch(web: aiohttp.ClientSession, port: int, path: str) -> tuple[int, str]:
    async with web.get(f"http://127.0.0.1:{port}{path}") as response:
        return response.status, await response.text()


async def test_probes_and_metrics_are_served_on_their_own_ports(
    harness: Harness, web: aiohttp.ClientSession
) -> None:
    await harness.install(App)
    operator = Operator(controllers=[Recorder()], metrics_port=0, health_port=0, host="127.0.0.1")
    async with operator.running(harness.connect("operator")) as run:
        await run.wait_until_synced()
        ports = run.probes.ports
        assert ports["metrics"] != ports["health"]
        assert (await fetch(web, ports["health"], "/healthz"))[0] == 200
        status, text = await fetch(web, ports["health"], "/readyz")
        assert status == 200
        assert "[+] watch example.com/v1/App: watching" in text
        status, text = await fetch(web, ports["metrics"], "/metrics")
        assert status == 200
        assert "# TYPE controller_reconciliations_total counter" in text
        assert (await fetch(web, ports["metrics"], "/healthz"))[0] == 404


async def test_the_paths_are_configurable(harness: Harness, web: aiohttp.ClientSession) -> None:
    await harness.install(App)
    paths = {"metrics_path": "/prometheus", "liveness_path": "/live", "readiness_path": "/ready"}
    operator = Operator(controllers=[Recorder()], metrics_port=0, health_port=0, host="127.0.0.1", **paths)  # type: ignore[arg-type]
    async with operator.running(harness.connect("operator")) as run:
        await run.wait_until_synced()
        ports = run.probes.ports
        assert (await fetch(web, ports["metrics"], "/prometheus"))[0] == 200
        assert (await fetch(web, ports["health"], "/live"))[0] == 200
        assert (await fetch(web, ports["health"], "/ready"))[0] == 200
        assert (await fetch(web, ports["health"], "/healthz"))[0] == 404


@pytest.mark.parametrize(
    ("sent", "received"),
    [
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 200 OK\r\n"),
        (b"GET /healthz?verbose HTTP/1.0\r\n\r\n", b"HTTP/1.1 200 OK\r\n"),
        (b"GET /broken HTTP/1.1\r\n\r\n", b"HTTP/1.1 404 Not Found\r\n"),
        (b"GET /readyz HTTP/1.1\r\n\r\n", b"HTTP/1.1 500 Internal Server Error\r\n"),
        (b"POST /healthz HTTP/1.1\r\n\r\n", b"HTTP/1.1 405 Method Not Allowed\r\n"),
        (b"\x16\x03\x01\r\n\r\n", b"HTTP/1.1 400 Bad Request\r\n"),
        (b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 20_000, b"HTTP/1.1 431 "),
        (b"GET /heal", b""),
    ],
)
async def test_any_request_gets_a_response(sent: bytes, received: bytes) -> None:
    def broken() -> HealthCheckResult:
        raise LookupError("no such watch")

    health = HealthChecks()
    health.ready["watch"] = broken
    server = ProbeServer(health, Metrics(), host="127.0.0.1", metrics_port=None, health_port=0)
    await server.start()
    for request, expected in ((sent, received), (b"HEAD /healthz HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\n")):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.ports["health"])
        writer.write(request)
        writer.write_eof()
        reply = await asyncio.wait_for(reader.read(), 5)
        assert reply.startswith(expected)
        assert not request.startswith(b"HEAD") or reply.endswith(b"\r\n\r\n")
        writer.close()
    await server.stop()


@pytest.mark.each_loop
async def test_silent_connections_do_not_lock_out_the_kubelet() -> None:
    server = ProbeServer(HealthChecks(), Metrics(), host="127.0.0.1", metrics_port=None, health_port=0)
    await server.start()
    port = server.ports["health"]
    silent: list[socket.socket] = []

    async def connected() -> list[int]:
        return [index for index, caller in enumerate(silent) if is_open(caller)]

    try:
        for _ in range(2):
            # The loop does not run meanwhile, so it accepts all of them in one turn.
            silent += [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
            assert (await asyncio.wait_for(reader.read(), 5)).startswith(b"HTTP/1.1 200 OK")
            writer.close()
        most = 128
        left = await eventually(connected, lambda left: len(left) <= most, "the rest to be closed", seconds=5)
        assert left == list(range(200 - len(left), 200)), "the oldest are closed first"
        assert len(left) > most - 5, "and only as many as exceed the limit"
    finally:
        await asyncio.wait_for(server.stop(), 5)
    assert await eventually(connected, lambda left: not left, "the last to be closed", seconds=5) == []
    for caller in silent:
        caller.close()


def is_open(caller: socket.socket) -> bool:
    """Return whether the server has kept the connection open."""
    try:
        return caller.recv(1, socket.MSG_DONTWAIT) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


@pytest.mark.each_loop
@pytest.mark.parametrize("moments", range(3, 7))
async def test_a_new_connection_is_closed_when_the_server_stops(moments: int) -> None:
    server = ProbeServer(HealthChecks(), Metrics(), host="127.0.0.1", metrics_port=None, health_port=0)
    await server.start()
    caller = socket.create_connection(("127.0.0.1", server.ports["health"]))
    for _ in range(moments):
        await asyncio.sleep(0)
    await server.stop()
    reader, writer = await asyncio.open_connection(sock=caller)
    with contextlib.suppress(ConnectionError):
        assert await asyncio.wait_for(reader.read(), 2) == b""
    writer.close()


@pytest.mark.each_loop
async def test_the_probes_can_be_served_on_ipv6() -> None:
    server = ProbeServer(HealthChecks(), Metrics(), host="::1", metrics_port=None, health_port=0)
    await server.start()
    reader, writer = await asyncio.open_connection("::1", server.ports["health"])
    writer.write(b"HEAD /nothing HTTP/1.1\r\n\r\n")
    answer = await asyncio.wait_for(reader.read(), 5)
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert answer.endswith(b"\r\n\r\n")
    writer.close()
    await server.stop()


@pytest.mark.each_loop
async def test_an_invalid_port_is_reported() -> None:
    server = ProbeServer(HealthChecks(), Metrics(), host="127.0.0.1", metrics_port=70000, health_port=None)
    with pytest.raises(PortTakenError, match="cannot serve metrics on port 70000"):
        await server.start()
    await server.stop()


def test_an_operator_without_webhooks_loads_no_web_framework() -> None:
    program = "import sys, kapsa.runtime.operator.entrypoint; print([m for m in sys.modules if m.startswith('aiohttp')])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


async def test_one_port_can_serve_both(web: aiohttp.ClientSession, unused_tcp_port: int) -> None:
    server = ProbeServer(
        HealthChecks(), Metrics(), host="127.0.0.1", metrics_port=unused_tcp_port, health_port=unused_tcp_port
    )
    await server.start()
    for path in ("/metrics", "/healthz", "/readyz"):
        assert (await fetch(web, unused_tcp_port, path))[0] == 200
    await server.stop()


async def test_a_port_in_use_is_reported(unused_tcp_port: int) -> None:
    taken = ProbeServer(
        HealthChecks(), Metrics(), host="127.0.0.1", metrics_port=unused_tcp_port, health_port=None
    )
    await taken.start()
    second = ProbeServer(
        HealthChecks(), Metrics(), host="127.0.0.1", metrics_port=unused_tcp_port, health_port=None
    )
    with pytest.raises(OSError, match=f"cannot serve metrics on port {unused_tcp_port}"):
        await second.start()
    await second.stop()
    await taken.stop()


async def test_one_failed_check_makes_it_not_ready_and_is_reported(web: aiohttp.ClientSession) -> None:
    health = HealthChecks()
    health.ready["good"] = lambda: HealthCheckResult(ok=True)
    health.ready["bad"] = lambda: HealthCheckResult(ok=False, text="no luck")
    server = ProbeServer(health, Metrics(), host="127.0.0.1", metrics_port=None, health_port=0)
    await server.start()
    assert await fetch(web, server.ports["health"], "/readyz") == (
        503,
        "[+] good: ok\n[-] bad: no luck\nnot ok\n",
    )
    await server.stop()
