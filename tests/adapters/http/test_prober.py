"""Probes of a host through the ingress, as a browser would send them."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from kapsa.adapters.errors import ExternalError, Refused
from kapsa.adapters.http.client import GuardedHttpClient, HttpResponse
from kapsa.adapters.http.prober import HttpProber
from kapsa.runtime.testing import issue_certificate, make_authority


class Ingress:
    """A server for one host."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.names: list[str | None] = []
        """The server names that TLS clients sent."""
        self.address = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append((request.host, request.path))
        if request.host != "pr-7.example.com":
            return web.Response(status=404)
        return web.Response(status=302, headers={"Location": "http://169.254.169.254/"})


@contextlib.asynccontextmanager
async def serving(made: Ingress, context: ssl.SSLContext | None = None) -> AsyncIterator[Ingress]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", made.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    made.address = f"127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield made
    finally:
        await runner.cleanup()


@pytest_asyncio.fixture
async def ingress() -> AsyncIterator[Ingress]:
    async with serving(Ingress()) as made:
        yield made


@pytest_asyncio.fixture
async def tls_ingress(tmp_path: Path) -> AsyncIterator[Ingress]:
    now, lifetime = datetime.now(UTC), timedelta(days=1)
    pair = issue_certificate(
        make_authority("a test", now=now, lifetime=lifetime), ["x"], now=now, lifetime=lifetime
    )
    (tmp_path / "server.pem").write_bytes(pair.certificate + pair.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    made = Ingress()
    context.set_servername_callback(lambda _socket, name, _context: made.names.append(name))
    async with serving(made, context):
        yield made


async def test_the_ingress_gets_the_host_name_and_a_redirect_counts_as_a_response(
    ingress: Ingress,
) -> None:
    http = GuardedHttpClient(address_guard=None)
    try:
        prober = HttpProber(http)
        assert await prober.probe("http://pr-7.example.com/app", address=ingress.address) == 302
        assert await prober.probe("http://pr-8.example.com", address=ingress.address) == 404
    finally:
        await http.close()
    assert ingress.asked == [("pr-7.example.com", "/app"), ("pr-8.example.com", "/")]


async def test_an_https_host_is_probed_over_tls_by_its_name_without_verification(
    tls_ingress: Ingress, ingress: Ingress
) -> None:
    http = GuardedHttpClient(address_guard=None)
    hosts = ["pr-7.example.com", "pr-8.example.com"]
    try:
        prober = HttpProber(http)
        assert [await prober.probe(f"https://{each}", address=tls_ingress.address) for each in hosts] == [
            302,
            404,
        ]
        with pytest.raises(ExternalError):  # what speaks no TLS does not serve it
            await prober.probe("https://pr-7.example.com", address=ingress.address)
    finally:
        await http.close()
    assert tls_ingress.names == hosts
    assert ingress.asked == []


async def test_port_80_is_probed_in_plain_http() -> None:
    asked: list[tuple[str, object]] = []

    class Answers:
        async def fetch(self, method: str, url: str, **options: Any) -> HttpResponse:
            asked.append((url, options["headers"]))
            return HttpResponse(308, {})

    assert await HttpProber(Answers()).probe("https://pr-7.example.com/app", address="ingress:80") == 308
    assert asked == [("http://ingress:80/app", {"Host": "pr-7.example.com"})]


async def test_no_response_is_a_retryable_error(ingress: Ingress) -> None:
    http = GuardedHttpClient(address_guard=None)
    try:
        with pytest.raises(ExternalError) as error:
            await HttpProber(http).probe("https://pr-7.example.com", address="127.0.0.1:1")
    finally:
        await http.close()
    assert error.value.retryable


async def test_a_host_that_resolves_to_this_machine_is_not_probed(ingress: Ingress) -> None:
    http = GuardedHttpClient()
    try:
        with pytest.raises(Refused):
            await HttpProber(http).probe(f"http://{ingress.address}")
        with pytest.raises(Refused):
            await HttpProber(http).probe(f"http://localhost:{ingress.address.rpartition(':')[2]}")
    finally:
        await http.close()
    assert ingress.asked == []
