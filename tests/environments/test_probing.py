"""A host is asked for a page, through the ingress, as a browser would."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiohttp import web

from kapsa.environments.outgoing import OutgoingHttp
from kapsa.environments.outside import OutsideError, Refused
from kapsa.environments.probing import HttpProber


class Ingress:
    """Answers for one host."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.address = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append((request.host, request.path))
        if request.host != "pr-7.example.com":
            return web.Response(status=404)
        return web.Response(status=302, headers={"Location": "http://169.254.169.254/"})


@pytest_asyncio.fixture
async def ingress() -> AsyncIterator[Ingress]:
    made = Ingress()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", made.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.address = f"127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield made
    finally:
        await runner.cleanup()


async def test_a_host_is_asked_at_the_ingress_by_its_name_and_a_redirect_is_an_answer(
    ingress: Ingress,
) -> None:
    outgoing = OutgoingHttp(address_guard=None)
    try:
        prober = HttpProber(outgoing)
        assert await prober.probe("https://pr-7.example.com/app", address=ingress.address) == 302
        assert await prober.probe("https://pr-8.example.com", address=ingress.address) == 404
    finally:
        await outgoing.close()
    assert ingress.asked == [("pr-7.example.com", "/app"), ("pr-8.example.com", "/")]


async def test_no_answer_is_an_error_that_may_pass(ingress: Ingress) -> None:
    outgoing = OutgoingHttp(address_guard=None)
    try:
        with pytest.raises(OutsideError) as error:
            await HttpProber(outgoing).probe("https://pr-7.example.com", address="127.0.0.1:1")
    finally:
        await outgoing.close()
    assert error.value.retryable


async def test_a_host_that_leads_to_this_machine_is_not_asked(ingress: Ingress) -> None:
    outgoing = OutgoingHttp()
    try:
        with pytest.raises(Refused):
            await HttpProber(outgoing).probe(f"http://{ingress.address}")
        with pytest.raises(Refused):
            await HttpProber(outgoing).probe(f"http://localhost:{ingress.address.rpartition(':')[2]}")
    finally:
        await outgoing.close()
    assert ingress.asked == []
