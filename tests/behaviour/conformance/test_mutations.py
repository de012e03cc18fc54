"""Broken objects of each built-in kind: refused, or accepted, as a real API server does, in its words.

`pytest --engine real` sends the mutations to the real control plane and compares the responses with the
recording; with KAPSA_RECORD=1 it writes a new recording.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from kapsa.devcluster import DevCluster
from kapsa.devcluster.wire.exchange import Request
from tests.behaviour.conformance.mutation_table.mutate import (
    NAMESPACE,
    Subject,
    expected,
    outcome,
    record,
    subjects,
)
from tests.behaviour.conformance.pair import tls_of

SUBJECTS = subjects()
EXPECTED = expected()
OPEN: dict[str, int] = {
    "persistentvolumes": 1,
    "persistentvolumes hostpath": 1,
    "persistentvolumes local": 1,
    "persistentvolumes nfs": 1,
    "events v1": 4,
    "services": 1,
    "replicationcontrollers": 1,
    "deployments": 1,
    "replicasets": 1,
    "daemonsets": 1,
    "statefulsets": 1,
    "jobs": 3,
}
"""The number of mutations that the embedded server answers differently, for kinds that are not complete."""

Create = Callable[[str, str, Any], Awaitable[tuple[int, Any]]]
"""Creates an object in a collection, with a query; returns the status and the decoded response."""


async def _prepare(create: Create) -> None:
    """Create the namespace of the objects, and the service account that pods need."""
    accounts = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
    for collection, name in (("/api/v1/namespaces", NAMESPACE), (accounts, "default")):
        status, answer = await create(collection, "", {"metadata": {"name": name}})
        assert status == 201, answer


@asynccontextmanager
async def _embedded() -> AsyncIterator[Create]:
    async with DevCluster(http=False, controllers=False) as cluster:

        async def create(collection: str, query: str, body: Any) -> tuple[int, Any]:
            headers = {"content-type": "application/json"}
            content = json.dumps(body).encode()
            reply = await cluster.handle(
                Request(method="POST", path=collection, query=query, headers=headers, body=content)
            )
            assert isinstance(reply.body, bytes)
            return reply.status, json.loads(reply.body)

        await _prepare(create)
        yield create


@asynccontextmanager
async def _real() -> AsyncIterator[Create]:
    async with DevCluster(engine="real", controllers=False) as cluster:
        connector = aiohttp.TCPConnector(ssl=tls_of(cluster.kubeconfig_data), limit=20)
        async with aiohttp.ClientSession(connector=connector) as session:

            async def create(collection: str, query: str, body: Any) -> tuple[int, Any]:
                url = f"{cluster.url}{collection}?{query}"
                async with session.post(url, json=body) as response:
                    return response.status, await response.json()

            await _prepare(create)
            yield create


async def _refusals(subject: Subject, create: Create) -> dict[str, Any]:
    """Send each mutation of an object as a dry run and return what was refused, and why."""
    status, answer = await create(subject.collection, "dryRun=All", subject.object)
    assert status == 201, answer
    gate = asyncio.Semaphore(20)

    async def one(body: Any) -> Any:
        async with gate:
            return outcome(*await create(subject.collection, "dryRun=All", body))

    mutations = subject.mutations
    outcomes = await asyncio.gather(*(one(mutation.apply(subject.object)) for mutation in mutations))
    pairs = zip(mutations, outcomes, strict=True)
    return {mutation.name: result for mutation, result in pairs if not isinstance(result, int)}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def embedded() -> AsyncIterator[Create]:
    async with _embedded() as create:
        yield create


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.sampled(10)
@pytest.mark.parametrize("kind", SUBJECTS)
async def test_the_embedded_server_refuses_what_the_real_one_did(kind: str, embedded: Create) -> None:
    refused, recorded = await _refusals(SUBJECTS[kind], embedded), EXPECTED[kind]
    different = {name for name in refused | recorded if refused.get(name) != recorded.get(name)}
    if kind in OPEN:
        assert len(different) == OPEN[kind], "the number in OPEN must follow; no entry means no difference"
    else:
        shown = {name: (refused.get(name), recorded.get(name)) for name in sorted(different)}
        assert not shown, "(embedded, real) differ"


def test_the_table_covers_each_kind_with_its_recording() -> None:
    assert set(SUBJECTS) == set(EXPECTED)
    assert sum(len(subject.mutations) for subject in SUBJECTS.values()) >= 3000


@pytest.mark.real
@pytest.mark.timeout(600)
async def test_the_real_server_still_refuses_what_was_recorded(record_property: Any) -> None:
    sent = sum(len(subject.mutations) for subject in SUBJECTS.values())
    record_property("mutations", [len(SUBJECTS), sent, sum(OPEN.values())])
    async with _real() as create:
        refused = {kind: await _refusals(subject, create) for kind, subject in SUBJECTS.items()}
    if os.environ.get("KAPSA_RECORD"):
        record(refused)
    else:
        assert refused == EXPECTED
