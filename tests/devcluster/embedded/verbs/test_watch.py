"""Watches: their start, their events, their end, and the tasks they leave behind."""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio

from kapsa.devcluster import VirtualClock
from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.server import Server
from kapsa.devcluster.embedded.storage.store import ObjectStore
from tests.devcluster.embedded.api import CONFIGMAPS, Api

pytestmark = pytest.mark.virtual_time


@pytest_asyncio.fixture
async def api() -> Api:
    return Api(Server(Backend(clock=VirtualClock())))


async def test_a_watch_without_a_revision_begins_with_the_existing_objects(api: Api):
    await api.configmap("a")
    async with api.watch(CONFIGMAPS) as watch:
        assert await watch.take(1) == [("ADDED", "a")]
        await api.configmap("b")
        await api.merge(f"{CONFIGMAPS}/b", {"data": {"x": "1"}})
        await api.delete(f"{CONFIGMAPS}/a")
        assert await watch.take(3) == [("ADDED", "b"), ("MODIFIED", "b"), ("DELETED", "a")]


async def test_a_watch_from_a_revision_delivers_later_changes(api: Api):
    first = await api.configmap("a")
    await api.configmap("b")
    async with api.watch(CONFIGMAPS, resourceVersion=first.revision) as watch:
        assert await watch.take(1) == [("ADDED", "b")]


async def test_a_deleted_object_is_delivered_at_the_revision_of_its_deletion(api: Api):
    created = await api.configmap("a")
    async with api.watch(CONFIGMAPS, resourceVersion=created.revision) as watch:
        await api.delete(f"{CONFIGMAPS}/a")
        event = await watch.next()
        assert event is not None
        assert int(event["object"]["metadata"]["resourceVersion"]) == api.server.backend.store.revision
        assert event["object"]["metadata"]["uid"] == created.meta["uid"]


async def test_entering_a_selection_is_added_and_leaving_it_is_deleted(api: Api):
    await api.configmap("a")
    async with api.watch(CONFIGMAPS, labelSelector="on") as watch:
        path = f"{CONFIGMAPS}/a"
        await api.merge(path, {"metadata": {"labels": {"on": "1"}}})
        await api.merge(path, {"data": {"x": "1"}})
        await api.merge(path, {"metadata": {"labels": {"on": None}}, "data": {"x": "2"}})
        await api.merge(path, {"data": {"x": "3"}})
        await api.merge(path, {"metadata": {"labels": {"on": "1"}}})
        events = [await watch.next() for _ in range(4)]
        assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED", "ADDED"]
        left = events[2]["object"]
        # An object that left is delivered in its last state inside, at the revision at which it left.
        assert left["data"] == {"x": "1"}
        assert int(left["metadata"]["resourceVersion"]) > int(
            events[1]["object"]["metadata"]["resourceVersion"]
        )


async def test_a_watch_of_one_namespace_or_one_name_delivers_no_other(api: Api):
    await api.post("/api/v1/namespaces", {"metadata": {"name": "other"}})
    async with api.watch(CONFIGMAPS) as one, api.watch("/api/v1/configmaps") as everywhere:
        await api.post("/api/v1/namespaces/other/configmaps", {"metadata": {"name": "far"}})
        await api.configmap("near")
        assert await one.take(1) == [("ADDED", "near")]
        assert await everywhere.take(2) == [("ADDED", "far"), ("ADDED", "near")]
    async with api.watch(CONFIGMAPS, fieldSelector="metadata.name=x") as named:
        await api.configmap("y")
        await api.configmap("x")
        assert await named.take(1) == [("ADDED", "x")]


async def test_initial_events_end_with_an_annotated_bookmark(api: Api):
    await api.configmap("a")
    query = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    async with api.watch(CONFIGMAPS, **query) as watch:
        assert await watch.take(1) == [("ADDED", "a")]
        bookmark = await watch.next()
        assert bookmark is not None
        assert bookmark["type"] == "BOOKMARK"
        assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_bookmarks_carry_the_newest_revision_about_once_a_minute(api: Api):
    start = (await api.get(CONFIGMAPS)).revision
    async with api.watch(CONFIGMAPS, resourceVersion=start, allowWatchBookmarks="true") as watch:
        loop = asyncio.get_running_loop()
        await api.post("/api/v1/namespaces", {"metadata": {"name": "elsewhere"}})
        began = loop.time()
        bookmark = await watch.next()
        assert bookmark is not None
        assert bookmark["type"] == "BOOKMARK"
        assert bookmark["object"]["kind"] == "ConfigMap"
        assert int(bookmark["object"]["metadata"]["resourceVersion"]) > start
        assert 50 <= loop.time() - began <= 70


async def test_a_watch_ends_after_its_timeout(api: Api):
    loop = asyncio.get_running_loop()
    async with api.watch(CONFIGMAPS, timeoutSeconds=30) as watch:
        assert await watch.next() is None
    assert loop.time() == pytest.approx(30)


async def test_a_watch_without_a_timeout_ends_within_an_hour(api: Api):
    loop = asyncio.get_running_loop()
    async with api.watch(CONFIGMAPS) as watch:
        assert await watch.next() is None
    assert 1800 <= loop.time() <= 3600


async def test_a_compacted_revision_is_reported_inside_the_stream(api: Api):
    created = await api.configmap("a")
    await api.configmap("b")
    api.server.backend.store.compact()
    async with api.watch(CONFIGMAPS, resourceVersion=created.revision) as watch:
        assert watch.status == 200
        event = await watch.next()
        assert event is not None
        assert event["type"] == "ERROR"
        assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
        assert event["object"]["message"].startswith(f"too old resource version: {created.revision} (")
        assert await watch.next() is None


async def test_a_watcher_that_falls_behind_the_window_gets_an_error():
    api = Api(Server(Backend(clock=VirtualClock(), store=ObjectStore(window_changes=10))))
    await api.configmap("a")
    async with api.watch(CONFIGMAPS) as watch:
        assert await watch.take(1) == [("ADDED", "a")]
        for number in range(30):
            await api.merge(f"{CONFIGMAPS}/a", {"data": {"n": str(number)}})
        event = await watch.next()
        assert event is not None
        assert event["type"] == "ERROR"
        assert event["object"]["code"] == 410


async def test_a_watch_rejects_invalid_options(api: Api):
    refused = await api.get(CONFIGMAPS, watch="1", sendInitialEvents="true")
    assert refused.status == 422
    assert "requires setting resourceVersionMatch to NotOlderThan" in refused.message
    bad = await api.get(CONFIGMAPS, watch="1", resourceVersion="abc")
    assert bad.status == 500
    assert "strconv.ParseUint" in bad.message


async def test_one_change_is_encoded_once_for_all_watchers(api: Api):
    start = api.server.backend.store.revision
    replies = [await api.open("GET", CONFIGMAPS, watch="1", resourceVersion=start) for _ in range(5)]
    await api.configmap("a")
    frames = [await anext(reply.body) for reply in replies]
    assert len({id(frame) for frame in frames}) <= 2
    assert len(set(frames)) == 1
    for reply in replies:
        await reply.body.aclose()


async def test_a_closed_watch_leaves_no_task_and_no_waiter(api: Api):
    before = len(asyncio.all_tasks())
    for _ in range(50):
        async with api.watch(CONFIGMAPS) as watch:
            waiting = asyncio.create_task(watch.next())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
    collection = api.server.backend.store.collection("", "configmaps")
    assert collection._waiters == []
    assert len(asyncio.all_tasks()) == before
