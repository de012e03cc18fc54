"""Server-side apply against the table: the object, its managedFields and the errors of a real API server.

`pytest --engine real` plays the table on the real control plane and compares the responses with the
recording; with KAPSA_RECORD=1 it writes a new recording.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from kapsa.devcluster import DevCluster
from kapsa.devcluster.wire.exchange import Request
from tests.behaviour.conformance.apply_table.histories import deployment_history, widget_history
from tests.behaviour.conformance.apply_table.play import (
    GROUP,
    Send,
    cases,
    definitions,
    expected,
    play,
    record,
)
from tests.behaviour.conformance.pair import tls_of

CASES = cases()
EXPECTED = expected()
RANDOM_HISTORIES = 200
JSON = {"content-type": "application/json"}


class StepClock:
    """A clock that advances only when a step of a case begins."""

    def __init__(self) -> None:
        self._now = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._now.timestamp()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def tick(self) -> None:
        self._now += timedelta(seconds=1)


async def _install(send: Send) -> None:
    for definition in definitions():
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        status, answer = await send("POST", path, JSON, json.dumps(definition).encode())
        assert status == 201, answer
        plural = definition["spec"]["names"]["plural"]
        for _ in range(200):
            status, _answer = await send("GET", f"/apis/{GROUP}/v1/{plural}", {}, b"")
            if status == 200:
                break
            await asyncio.sleep(0.1)
        assert status == 200, f"{plural} did not become available"


async def _open(send: Send, namespace: str) -> None:
    body = json.dumps({"metadata": {"name": namespace}}).encode()
    status, answer = await send("POST", "/api/v1/namespaces", JSON, body)
    assert status == 201, answer


def _decoded(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode()


def _embedded(cluster: DevCluster) -> Send:
    async def send(method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, Any]:
        path, _, query = path.partition("?")
        lower = {name.lower(): value for name, value in headers.items()}
        reply = await cluster.handle(Request(method=method, path=path, query=query, headers=lower, body=body))
        assert isinstance(reply.body, bytes)
        return reply.status, _decoded(reply.body)

    return send


class Table:
    """An embedded server for all cases; each has a namespace of its own."""

    def __init__(self, cluster: DevCluster, clock: StepClock) -> None:
        self._send = _embedded(cluster)
        self._clock = clock
        self._numbers = itertools.count()

    async def install(self) -> None:
        await _install(self._send)

    async def play(self, case: dict[str, Any]) -> list[Any]:
        namespace = f"case-{next(self._numbers)}"
        await _open(self._send, namespace)
        return await play(case, namespace, self._send, self._clock.tick)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def table() -> AsyncIterator[Table]:
    clock = StepClock()
    async with DevCluster(clock=clock, http=False, controllers=False) as cluster:
        fixture = Table(cluster, clock)
        await fixture.install()
        yield fixture


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
async def test_the_embedded_server_does_what_the_real_one_did(case: dict[str, Any], table: Table) -> None:
    assert await table.play(case) == EXPECTED[case["name"]]


def test_the_table_is_long_and_its_names_are_unique() -> None:
    assert len(CASES) >= 200
    assert len({case["name"] for case in CASES}) == len(CASES)
    assert {case["name"] for case in CASES} == set(EXPECTED)


@asynccontextmanager
async def _real() -> AsyncIterator[Send]:
    async with DevCluster(engine="real", controllers=False) as cluster:
        connector = aiohttp.TCPConnector(ssl=tls_of(cluster.kubeconfig_data), limit=50)
        async with aiohttp.ClientSession(connector=connector) as session:

            async def send(method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, Any]:
                async with session.request(
                    method, cluster.url + path, headers=headers, data=body
                ) as response:
                    return response.status, _decoded(await response.read())

            yield send


async def _next_second() -> None:
    now = time.time()
    await asyncio.sleep(int(now) + 1.02 - now)


async def _play_all(histories: list[dict[str, Any]], send: Send) -> list[list[Any]]:
    """Play each history in its own namespace, many at a time, because a step waits for the next second."""
    gate = asyncio.Semaphore(80)

    async def one(number: int, history: dict[str, Any]) -> list[Any]:
        async with gate:
            await _open(send, f"case-{number}")
            return await play(history, f"case-{number}", send, _next_second)

    return list(await asyncio.gather(*(one(number, history) for number, history in enumerate(histories))))


@pytest.mark.real
@pytest.mark.timeout(600)
async def test_the_real_server_still_does_what_was_recorded() -> None:
    async with _real() as send:
        await _install(send)
        outcomes = await _play_all(CASES, send)
    played = {case["name"]: outcome for case, outcome in zip(CASES, outcomes, strict=True)}
    if os.environ.get("KAPSA_RECORD"):
        record(played)
    else:
        assert played == EXPECTED


@pytest.mark.real
@pytest.mark.timeout(600)
async def test_random_histories_end_alike_on_both_engines() -> None:
    histories = [
        history(seed) for seed in range(RANDOM_HISTORIES) for history in (widget_history, deployment_history)
    ]
    async with _real() as send:
        await _install(send)
        recorded = await _play_all(histories, send)
    clock = StepClock()
    async with DevCluster(clock=clock, http=False, controllers=False) as cluster:
        table = Table(cluster, clock)
        await table.install()
        for history, outcome in zip(histories, recorded, strict=True):
            assert await table.play(history) == outcome, history["name"]
