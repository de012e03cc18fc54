"""Each action of a fault plan as a client sees it: on the embedded engine, or through the proxy on the real one."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from kapsa.devcluster import DevCluster, FaultPlan, FaultRule
from kapsa.devcluster.faults import (
    Answer,
    Compact,
    Crash,
    Cut,
    Delay,
    Drop,
    Duplicate,
    Expire,
    Freeze,
    Silence,
)
from kapsa.devcluster.real.proxy import FaultProxy
from tests.eventually import eventually

Object = dict[str, Any]


class FaultyCluster:
    """A cluster with a fault plan, and a client of it."""

    def __init__(self, url: str, plan: FaultPlan, namespace: str) -> None:
        self.url = url
        self.plan = plan
        self.namespace = namespace
        self.path = f"/api/v1/namespaces/{namespace}/configmaps"
        self.session = aiohttp.ClientSession(url)

    async def send(
        self, method: str, path: str, body: Any = None, *, client: str = "", **query: str
    ) -> tuple[int, Any]:
        content = {"PATCH": "application/merge-patch+json"}.get(method, "application/json")
        headers = {"x-kapsa-client": client, "content-type": content}
        data = None if body is None else json.dumps(body)
        async with self.session.request(method, path, data=data, params=query, headers=headers) as response:
            return response.status, await response.json()

    async def create(self, name: str, *, client: str = "", **data: str) -> tuple[int, Any]:
        return await self.send("POST", self.path, {"metadata": {"name": name}, "data": data}, client=client)

    async def get(self, name: str, *, client: str = "") -> tuple[int, Any]:
        return await self.send("GET", f"{self.path}/{name}", client=client)

    async def names(self, *, client: str = "", **query: str) -> list[str]:
        status, body = await self.send("GET", self.path, client=client, **query)
        assert status == 200, body
        return [item["metadata"]["name"] for item in body["items"]]

    async def revision(self) -> str:
        _, body = await self.send("GET", self.path)
        return str(body["metadata"]["resourceVersion"])

    @asynccontextmanager
    async def watch(self, *, client: str = "", **query: str) -> AsyncIterator[aiohttp.StreamReader]:
        params = {"watch": "true", **query}
        headers = {"x-kapsa-client": client}
        async with self.session.get(self.path, params=params, headers=headers) as response:
            assert response.status == 200
            yield response.content


@pytest_asyncio.fixture
async def faulty(engine: str, request: pytest.FixtureRequest) -> AsyncIterator[FaultyCluster]:
    plan = FaultPlan()
    namespace = f"faults-{uuid.uuid4().hex[:8]}"
    if engine == "real":
        real: DevCluster = request.getfixturevalue("real_cluster")
        proxy = FaultProxy(real.url, real.kubeconfig_data, plan)
        await proxy.start()
        url, close = proxy.url, proxy.close
    else:
        embedded = DevCluster(faults=plan, controllers=False)
        await embedded.start()
        url, close = embedded.url, embedded.stop
    faulty = FaultyCluster(url, plan, namespace)
    try:
        assert (await faulty.send("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}}))[0] == 201
        if engine == "real":  # its controller creates a ConfigMap, which no test expects
            await eventually(
                lambda: faulty.send("GET", f"{faulty.path}/kube-root-ca.crt"),
                lambda answer: answer[0] == 200,
                "the namespace's own ConfigMap",
            )
        yield faulty
        plan.clear()
        await faulty.send("DELETE", f"/api/v1/namespaces/{namespace}")
    finally:
        await faulty.session.close()
        await close()


async def event(stream: aiohttp.StreamReader) -> tuple[str, str]:
    async with asyncio.timeout(10):
        line = await stream.readline()
    if not line:
        return "", ""
    decoded = json.loads(line)
    return decoded["type"], decoded["object"].get("metadata", {}).get("name", "")


@pytest.mark.parametrize(
    ("code", "reason"),
    [(409, "Conflict"), (500, "InternalError"), (504, "Timeout"), (503, "ServiceUnavailable")],
)
async def test_a_request_fails_before_it_does_anything(faulty: FaultyCluster, code: int, reason: str):
    rule = faulty.plan.add(FaultRule(action=Answer(code=code), verb="create", resource="configmaps"))
    status, body = await faulty.create("one")
    assert (status, body["reason"], body["code"]) == (code, reason, code)
    assert (await faulty.get("one"))[0] == 404
    assert rule.fired == 1
    assert (await faulty.create("one"))[0] == 201


async def test_too_many_requests_have_a_retry_after_header(faulty: FaultyCluster):
    faulty.plan.add(FaultRule(action=Answer(code=429, retry_after=3), verb="get"))
    headers = {"x-kapsa-client": ""}
    async with faulty.session.get(f"{faulty.path}/one", headers=headers) as response:
        assert response.status == 429
        assert response.headers["retry-after"] == "3"
        assert (await response.json())["details"]["retryAfterSeconds"] == 3


async def test_an_error_after_the_commit_hides_a_write_that_happened(faulty: FaultyCluster):
    faulty.plan.add(FaultRule(action=Answer(code=500), verb="create", when="after"))
    assert (await faulty.create("one"))[0] == 500
    assert (await faulty.get("one"))[0] == 200


@pytest.mark.parametrize(("when", "exists"), [("before", 404), ("after", 200)])
async def test_a_connection_is_dropped_without_a_reply(faulty: FaultyCluster, when: Any, exists: int):
    faulty.plan.add(FaultRule(action=Drop(), verb="create", when=when))
    with pytest.raises(aiohttp.ClientError):
        await faulty.create("one")
    assert (await faulty.get("one"))[0] == exists


async def test_a_request_is_delayed(faulty: FaultyCluster):
    faulty.plan.add(FaultRule(action=Delay(0.3), verb="get", name="one"))
    began = time.monotonic()
    assert (await faulty.get("one"))[0] == 404
    assert time.monotonic() - began >= 0.3


async def test_only_the_nth_request_of_its_kind_fails(faulty: FaultyCluster):
    faulty.plan.add(FaultRule(action=Answer(code=500), verb="create", resource="configmaps", nth=2, times=2))
    assert [(await faulty.create(name))[0] for name in "abcde"] == [201, 500, 500, 201, 201]


async def test_a_rule_waits_for_its_object_and_its_client(faulty: FaultyCluster):
    faulty.plan.add(FaultRule(action=Answer(code=500), verb="write", name="two", client="op", times=0))
    assert (await faulty.create("two", client="other"))[0] == 201
    assert (await faulty.create("one", client="op"))[0] == 201
    path = f"{faulty.path}/two"
    assert (await faulty.send("PATCH", path, {"data": {"a": "1"}}, client="op"))[0] == 500
    assert (await faulty.send("DELETE", path, client="op"))[0] == 500
    assert (await faulty.get("two", client="op"))[0] == 200


@pytest.mark.parametrize(("when", "exists"), [("before", 404), ("after", 200)])
async def test_a_crashed_client_is_not_served_until_it_is_revived(
    faulty: FaultyCluster, when: Any, exists: int
):
    faulty.plan.add(FaultRule(action=Crash(), verb="create", client="op", when=when))
    crashed = faulty.plan.crash_event("op")
    async with faulty.watch(client="op") as stream:
        with pytest.raises(aiohttp.ClientError):
            await faulty.create("one", client="op")
        assert crashed.is_set()
        assert faulty.plan.crashed == {"op"}
        while (await event(stream))[0]:
            pass
    with pytest.raises(aiohttp.ClientError):
        await faulty.get("one", client="op")
    assert (await faulty.get("one", client="another"))[0] == exists
    faulty.plan.revive("op")
    assert (await faulty.get("one", client="op"))[0] == exists


async def test_a_watch_is_cut_at_an_event(faulty: FaultyCluster):
    faulty.plan.add(FaultRule(action=Cut(), verb="watch", resource="configmaps", nth=2))
    async with faulty.watch(resourceVersion=await faulty.revision()) as stream:
        await faulty.create("a")
        await faulty.create("b")
        assert await event(stream) == ("ADDED", "a")
        assert await event(stream) == ("", "")


async def test_a_watch_is_silenced_and_stays_open(faulty: FaultyCluster):
    faulty.plan.add(FaultRule(action=Silence(), verb="watch", resource="configmaps", nth=2))
    async with faulty.watch(resourceVersion=await faulty.revision()) as stream:
        await faulty.create("a")
        await faulty.create("b")
        assert await event(stream) == ("ADDED", "a")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await stream.readline()
        assert not stream.at_eof()


async def test_an_event_is_delivered_twice(faulty: FaultyCluster):
    faulty.plan.add(FaultRule(action=Duplicate(), verb="watch", resource="configmaps"))
    async with faulty.watch(resourceVersion=await faulty.revision()) as stream:
        await faulty.create("a")
        await faulty.create("b")
        assert [await event(stream) for _ in range(3)] == [("ADDED", "a"), ("ADDED", "a"), ("ADDED", "b")]


async def test_a_watch_ends_with_an_expired_error(faulty: FaultyCluster):
    faulty.plan.add(FaultRule(action=Expire(), verb="watch", resource="configmaps"))
    async with faulty.watch(resourceVersion=await faulty.revision()) as stream:
        await faulty.create("a")
        line = json.loads(await stream.readline())
        assert (line["type"], line["object"]["code"], line["object"]["reason"]) == ("ERROR", 410, "Expired")
        assert await event(stream) == ("", "")


@pytest.mark.parametrize("order", [Cut(), Expire()])
async def test_open_watches_are_ended_at_once(faulty: FaultyCluster, order: Cut | Expire):
    async with faulty.watch(client="op", resourceVersion=await faulty.revision()) as stream:

        async def ordered() -> int:
            return faulty.plan.order(order, resource="configmaps", client="op")

        await eventually(ordered, lambda count: count == 1, "the watch", seconds=10)
        first = await event(stream)
        assert first == (("", "") if isinstance(order, Cut) else ("ERROR", ""))


async def test_a_list_can_fail_with_gone(faulty: FaultyCluster):
    faulty.plan.add(FaultRule(action=Answer(code=410), verb="list", resource="configmaps"))
    status, body = await faulty.send("GET", faulty.path)
    assert (status, body["reason"]) == (410, "Expired")


async def test_a_compaction_drops_earlier_revisions(faulty: FaultyCluster):
    await faulty.create("a")
    old = await faulty.revision()
    _, page = await faulty.send("GET", faulty.path, limit="1")
    for name in ("b", "c"):
        await faulty.create(name)
    _, page = await faulty.send("GET", faulty.path, limit="1")
    await faulty.create("d")
    faulty.plan.add(FaultRule(action=Compact(), verb="get"))
    await faulty.get("a")
    async with faulty.watch(resourceVersion=old) as stream:
        assert json.loads(await stream.readline())["object"]["code"] == 410
    status, gone = await faulty.send("GET", faulty.path, **{"continue": page["metadata"]["continue"]})
    assert (status, gone["reason"]) == (410, "Expired")
    inconsistent = gone["metadata"]["continue"]
    status, rest = await faulty.send("GET", faulty.path, **{"continue": inconsistent})
    assert status == 200
    assert [item["metadata"]["name"] for item in rest["items"]][:3] == ["b", "c", "d"]
    status, _ = await faulty.send("GET", faulty.path, resourceVersion=old, resourceVersionMatch="Exact")
    assert status == 410


async def test_reads_are_served_from_a_frozen_revision(faulty: FaultyCluster):
    await faulty.create("a", v="1")
    faulty.plan.add(FaultRule(action=Freeze(), verb="get", name="a"))
    await faulty.get("a")
    await faulty.create("b")
    await faulty.send("PATCH", f"{faulty.path}/a", {"data": {"v": "2"}})
    assert "b" not in await faulty.names()
    assert (await faulty.get("a"))[1]["data"] == {"v": "1"}
    assert (await faulty.get("a"))[1]["kind"] == "ConfigMap"
    assert (await faulty.get("b"))[0] == 404
    faulty.plan.thaw()
    assert "b" in await faulty.names()
    assert (await faulty.get("a"))[1]["data"] == {"v": "2"}


async def test_only_one_clients_reads_can_be_frozen_and_its_watches_wait(faulty: FaultyCluster):
    await faulty.create("a")
    faulty.plan.add(FaultRule(action=Freeze(client="stale"), verb="get", name="a"))
    await faulty.get("a")
    async with faulty.watch(client="stale", resourceVersion=await faulty.revision()) as stream:
        await faulty.create("b")
        assert "b" not in await faulty.names(client="stale")
        assert "b" in await faulty.names(client="fresh")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await stream.readline()
        faulty.plan.thaw()
        assert await event(stream) == ("ADDED", "b")


async def test_each_request_is_recorded(faulty: FaultyCluster):
    await faulty.create("one", client="op")
    await faulty.create("one", client="op")
    await faulty.get("one", client="op")
    await faulty.send("PATCH", f"{faulty.path}/one", {"data": {"a": "1"}}, client="op")
    await faulty.send("DELETE", f"{faulty.path}/one", client="op")
    seen = [
        (record.verb, record.resource, record.name, record.status)
        for record in faulty.plan.records
        if record.client == "op"
    ]
    assert seen == [
        ("create", "configmaps", "one", 201),
        ("create", "configmaps", "one", 409),
        ("get", "configmaps", "one", 200),
        ("patch", "configmaps", "one", 200),
        ("delete", "configmaps", "one", 200),
    ]
    assert [record.verb for record in faulty.plan.writes("op")] == ["create", "create", "patch", "delete"]
    assert faulty.plan.count(verb="create", namespace=faulty.namespace, status=201) == 1
