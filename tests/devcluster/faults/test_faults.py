"""Every action of the fault plan, seen by a client: on the embedded engine, or through the proxy on the real one."""

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


class Stage:
    """A cluster that fails as planned, and clients of it."""

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
async def stage(engine: str, request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
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
    stage = Stage(url, plan, namespace)
    try:
        assert (await stage.send("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}}))[0] == 201
        if engine == "real":  # its controller makes a ConfigMap of its own, which no test means
            await eventually(
                lambda: stage.send("GET", f"{stage.path}/kube-root-ca.crt"),
                lambda answer: answer[0] == 200,
                "the namespace's own ConfigMap",
            )
        yield stage
        plan.clear()
        await stage.send("DELETE", f"/api/v1/namespaces/{namespace}")
    finally:
        await stage.session.close()
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
async def test_a_request_is_answered_with_an_error_before_it_does_anything(
    stage: Stage, code: int, reason: str
):
    rule = stage.plan.add(FaultRule(action=Answer(code=code), verb="create", resource="configmaps"))
    status, body = await stage.create("one")
    assert (status, body["reason"], body["code"]) == (code, reason, code)
    assert (await stage.get("one"))[0] == 404
    assert rule.fired == 1
    assert (await stage.create("one"))[0] == 201


async def test_too_many_requests_come_with_a_retry_after(stage: Stage):
    stage.plan.add(FaultRule(action=Answer(code=429, retry_after=3), verb="get"))
    headers = {"x-kapsa-client": ""}
    async with stage.session.get(f"{stage.path}/one", headers=headers) as response:
        assert response.status == 429
        assert response.headers["retry-after"] == "3"
        assert (await response.json())["details"]["retryAfterSeconds"] == 3


async def test_an_error_after_the_commit_hides_a_write_that_happened(stage: Stage):
    stage.plan.add(FaultRule(action=Answer(code=500), verb="create", when="after"))
    assert (await stage.create("one"))[0] == 500
    assert (await stage.get("one"))[0] == 200


@pytest.mark.parametrize(("when", "exists"), [("before", 404), ("after", 200)])
async def test_a_connection_is_dropped_without_an_answer(stage: Stage, when: Any, exists: int):
    stage.plan.add(FaultRule(action=Drop(), verb="create", when=when))
    with pytest.raises(aiohttp.ClientError):
        await stage.create("one")
    assert (await stage.get("one"))[0] == exists


async def test_a_request_is_delayed(stage: Stage):
    stage.plan.add(FaultRule(action=Delay(0.3), verb="get", name="one"))
    began = time.monotonic()
    assert (await stage.get("one"))[0] == 404
    assert time.monotonic() - began >= 0.3


async def test_only_the_nth_request_of_its_kind_fails(stage: Stage):
    stage.plan.add(FaultRule(action=Answer(code=500), verb="create", resource="configmaps", nth=2, times=2))
    assert [(await stage.create(name))[0] for name in "abcde"] == [201, 500, 500, 201, 201]


async def test_a_rule_waits_for_its_object_and_its_client(stage: Stage):
    stage.plan.add(FaultRule(action=Answer(code=500), verb="write", name="two", client="op", times=0))
    assert (await stage.create("two", client="other"))[0] == 201
    assert (await stage.create("one", client="op"))[0] == 201
    path = f"{stage.path}/two"
    assert (await stage.send("PATCH", path, {"data": {"a": "1"}}, client="op"))[0] == 500
    assert (await stage.send("DELETE", path, client="op"))[0] == 500
    assert (await stage.get("two", client="op"))[0] == 200


@pytest.mark.parametrize(("when", "exists"), [("before", 404), ("after", 200)])
async def test_a_crashed_client_is_served_no_more_until_it_is_revived(stage: Stage, when: Any, exists: int):
    stage.plan.add(FaultRule(action=Crash(), verb="create", client="op", when=when))
    crashed = stage.plan.crash_event("op")
    async with stage.watch(client="op") as stream:
        with pytest.raises(aiohttp.ClientError):
            await stage.create("one", client="op")
        assert crashed.is_set()
        assert stage.plan.crashed == {"op"}
        while (await event(stream))[0]:
            pass
    with pytest.raises(aiohttp.ClientError):
        await stage.get("one", client="op")
    assert (await stage.get("one", client="another"))[0] == exists
    stage.plan.revive("op")
    assert (await stage.get("one", client="op"))[0] == exists


async def test_a_watch_is_cut_at_an_event(stage: Stage):
    stage.plan.add(FaultRule(action=Cut(), verb="watch", resource="configmaps", nth=2))
    async with stage.watch(resourceVersion=await stage.revision()) as stream:
        await stage.create("a")
        await stage.create("b")
        assert await event(stream) == ("ADDED", "a")
        assert await event(stream) == ("", "")


async def test_a_watch_is_silenced_and_stays_open(stage: Stage):
    stage.plan.add(FaultRule(action=Silence(), verb="watch", resource="configmaps", nth=2))
    async with stage.watch(resourceVersion=await stage.revision()) as stream:
        await stage.create("a")
        await stage.create("b")
        assert await event(stream) == ("ADDED", "a")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await stream.readline()
        assert not stream.at_eof()


async def test_an_event_is_sent_twice(stage: Stage):
    stage.plan.add(FaultRule(action=Duplicate(), verb="watch", resource="configmaps"))
    async with stage.watch(resourceVersion=await stage.revision()) as stream:
        await stage.create("a")
        await stage.create("b")
        assert [await event(stream) for _ in range(3)] == [("ADDED", "a"), ("ADDED", "a"), ("ADDED", "b")]


async def test_a_watch_is_told_that_its_revision_is_gone(stage: Stage):
    stage.plan.add(FaultRule(action=Expire(), verb="watch", resource="configmaps"))
    async with stage.watch(resourceVersion=await stage.revision()) as stream:
        await stage.create("a")
        line = json.loads(await stream.readline())
        assert (line["type"], line["object"]["code"], line["object"]["reason"]) == ("ERROR", 410, "Expired")
        assert await event(stream) == ("", "")


@pytest.mark.parametrize("order", [Cut(), Expire()])
async def test_open_watches_are_ended_on_the_spot(stage: Stage, order: Cut | Expire):
    async with stage.watch(client="op", resourceVersion=await stage.revision()) as stream:

        async def ordered() -> int:
            return stage.plan.order(order, resource="configmaps", client="op")

        await eventually(ordered, lambda count: count == 1, "the watch", seconds=10)
        first = await event(stream)
        assert first == (("", "") if isinstance(order, Cut) else ("ERROR", ""))


async def test_a_list_can_be_answered_with_gone(stage: Stage):
    stage.plan.add(FaultRule(action=Answer(code=410), verb="list", resource="configmaps"))
    status, body = await stage.send("GET", stage.path)
    assert (status, body["reason"]) == (410, "Expired")


async def test_a_compaction_forgets_what_was_before_it(stage: Stage):
    await stage.create("a")
    old = await stage.revision()
    _, page = await stage.send("GET", stage.path, limit="1")
    for name in ("b", "c"):
        await stage.create(name)
    _, page = await stage.send("GET", stage.path, limit="1")
    await stage.create("d")
    stage.plan.add(FaultRule(action=Compact(), verb="get"))
    await stage.get("a")
    async with stage.watch(resourceVersion=old) as stream:
        assert json.loads(await stream.readline())["object"]["code"] == 410
    status, gone = await stage.send("GET", stage.path, **{"continue": page["metadata"]["continue"]})
    assert (status, gone["reason"]) == (410, "Expired")
    inconsistent = gone["metadata"]["continue"]
    status, rest = await stage.send("GET", stage.path, **{"continue": inconsistent})
    assert status == 200
    assert [item["metadata"]["name"] for item in rest["items"]][:3] == ["b", "c", "d"]
    status, _ = await stage.send("GET", stage.path, resourceVersion=old, resourceVersionMatch="Exact")
    assert status == 410


async def test_reads_are_served_from_a_frozen_revision(stage: Stage):
    await stage.create("a", v="1")
    stage.plan.add(FaultRule(action=Freeze(), verb="get", name="a"))
    await stage.get("a")
    await stage.create("b")
    await stage.send("PATCH", f"{stage.path}/a", {"data": {"v": "2"}})
    assert "b" not in await stage.names()
    assert (await stage.get("a"))[1]["data"] == {"v": "1"}
    assert (await stage.get("a"))[1]["kind"] == "ConfigMap"
    assert (await stage.get("b"))[0] == 404
    stage.plan.thaw()
    assert "b" in await stage.names()
    assert (await stage.get("a"))[1]["data"] == {"v": "2"}


async def test_only_one_clients_reads_can_be_frozen_and_its_watches_wait(stage: Stage):
    await stage.create("a")
    stage.plan.add(FaultRule(action=Freeze(client="stale"), verb="get", name="a"))
    await stage.get("a")
    async with stage.watch(client="stale", resourceVersion=await stage.revision()) as stream:
        await stage.create("b")
        assert "b" not in await stage.names(client="stale")
        assert "b" in await stage.names(client="fresh")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await stream.readline()
        stage.plan.thaw()
        assert await event(stream) == ("ADDED", "b")


async def test_every_request_is_recorded(stage: Stage):
    await stage.create("one", client="op")
    await stage.create("one", client="op")
    await stage.get("one", client="op")
    await stage.send("PATCH", f"{stage.path}/one", {"data": {"a": "1"}}, client="op")
    await stage.send("DELETE", f"{stage.path}/one", client="op")
    seen = [
        (record.verb, record.resource, record.name, record.status)
        for record in stage.plan.records
        if record.client == "op"
    ]
    assert seen == [
        ("create", "configmaps", "one", 201),
        ("create", "configmaps", "one", 409),
        ("get", "configmaps", "one", 200),
        ("patch", "configmaps", "one", 200),
        ("delete", "configmaps", "one", 200),
    ]
    assert [record.verb for record in stage.plan.writes("op")] == ["create", "create", "patch", "delete"]
    assert stage.plan.count(verb="create", namespace=stage.namespace, status=201) == 1
