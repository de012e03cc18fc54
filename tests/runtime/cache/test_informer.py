"""What an informer promises: it stays in step with the cluster, whatever the stream does."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest

from kapsa.devcluster.faults import (
    Answer,
    Compact,
    Cut,
    Drop,
    Duplicate,
    Expire,
    FaultPlan,
    FaultRule,
    Silence,
)
from kapsa.runtime import Change, Client, GroupVersionKind, Informer, Key
from kapsa.runtime.cache.cache import Cache
from kapsa.runtime.cache.informer import SILENCE_SECONDS, State, WatchScope
from kapsa.runtime.testing import Harness, InProcessTransport
from tests.runtime.sample_app import App, app, config_map

pytestmark = pytest.mark.virtual_time

CONFIG_MAP = GroupVersionKind("", "v1", "ConfigMap")
SCOPE = WatchScope(CONFIG_MAP, "default", labels="test")


class Wiretap(InProcessTransport):
    """Writes down the query of every request, and when each watch was asked for."""

    def __init__(self, harness: Harness) -> None:
        super().__init__(harness.cluster, client="informer", latency=0.001)
        self.clock = harness.clock
        self.times: list[float] = []
        self.watches: list[Mapping[str, str]] = []
        self.lists: list[Mapping[str, str]] = []

    async def request(self, method: str, path: str, *, query: Any = (), **more: Any) -> Any:
        if path.endswith("/configmaps"):
            self.lists.append(dict(query))
        return await super().request(method, path, query=query, **more)

    def stream(self, method: str, path: str, *, query: Any = (), **more: Any) -> Any:
        self.watches.append(dict(query))
        self.times.append(self.clock.monotonic())
        return super().stream(method, path, query=query, **more)


class Bench:
    """An informer of labelled config maps, and what it told."""

    def __init__(self, harness: Harness, *, scope: WatchScope = SCOPE, seed: int = 1) -> None:
        self.harness = harness
        self.tap = Wiretap(harness)
        self.client = Client(self.tap, clock=harness.clock)
        self.informer = Informer(self.client, scope, rng=random.Random(seed))
        self.told: list[str] = []
        self.informer.add_handler(self._hear)

    def _hear(self, change: Change) -> None:
        self.told.append(f"{change.event} {change.object.name}")

    async def start(self) -> None:
        self.informer.start()
        await self.informer.synced.wait()

    async def make(self, *names: str) -> None:
        for name in names:
            made = config_map(name, labels={"test": "1"}, namespace="default")
            await self.harness.client.create(made)

    async def drop(self, name: str) -> None:
        await self.harness.client.delete("v1/ConfigMap", name, namespace="default")

    async def change(self, name: str, value: str) -> None:
        await self.harness.client.patch("v1/ConfigMap", name, {"data": {"image": value}}, namespace="default")

    @property
    def names(self) -> list[str]:
        return sorted(each.name for each in self.informer.store)

    async def wait(self, seconds: float = 1.0) -> None:
        await self.harness.clock.sleep(seconds)


@pytest.fixture
async def bench(harness: Harness) -> Any:
    made = Bench(harness)
    yield made
    await made.informer.stop()


async def test_it_lists_by_stream_and_follows_every_change(bench: Bench) -> None:
    await bench.make("a", "b")
    await bench.start()
    assert bench.informer.state is State.WATCHING
    assert bench.tap.lists == [], "the list came over the watch itself"
    assert sorted(bench.told) == ["Added a", "Added b"]
    await bench.make("c")
    await bench.change("a", "httpd")
    await bench.drop("b")
    await bench.wait()
    assert bench.told[2:] == ["Added c", "Updated a", "Deleted b"]
    assert bench.names == ["a", "c"]


async def test_lists_are_read_in_pages_if_the_server_does_not_stream_them(
    bench: Bench, faults: FaultPlan
) -> None:
    faults.add(FaultRule(action=Answer(code=422, reason="Invalid"), verb="watch", resource="configmaps"))
    await bench.make("a", "b")
    await bench.start()
    assert bench.names == ["a", "b"]
    assert len(bench.tap.lists) == 1
    await bench.make("c")
    await bench.wait()
    assert bench.names == ["a", "b", "c"]


async def test_initial_events_are_never_requested_on_a_resumed_watch(bench: Bench, faults: FaultPlan) -> None:
    await bench.start()
    await bench.make("a")
    await bench.wait()
    version = bench.informer.resource_version
    faults.order(Cut(), client="informer")
    await bench.wait(30)
    first, second = bench.tap.watches[:2]
    assert "sendInitialEvents" in first
    assert "resourceVersion" not in first
    assert "sendInitialEvents" not in second
    assert second["resourceVersion"] == version
    await bench.make("b")
    await bench.wait()
    assert bench.told == ["Added a", "Added b"]


async def test_every_watch_requests_bookmarks_and_ends_after_5_to_10_minutes(bench: Bench) -> None:
    await bench.start()
    await bench.wait(7200)
    times = [int(query["timeoutSeconds"]) for query in bench.tap.watches]
    assert all(300 <= seconds <= 600 for seconds in times)
    assert len(set(times)) > 5, "at random"
    assert all(query["allowWatchBookmarks"] == "true" for query in bench.tap.watches)
    assert bench.informer.relists == 0


async def test_a_watch_that_goes_silent_is_restarted(bench: Bench, faults: FaultPlan) -> None:
    await bench.start()
    await bench.make("a")
    await bench.wait(90)
    faults.order(Silence(), client="informer")
    await bench.make("b")
    await bench.wait(10)
    assert bench.names == ["a"]
    await bench.wait(SILENCE_SECONDS)
    assert bench.informer.restarts == 1
    assert bench.names == ["a", "b"]
    assert bench.told == ["Added a", "Added b"]


async def test_410_in_mid_stream_relists_and_derives_the_deletes(bench: Bench, faults: FaultPlan) -> None:
    await bench.make("kept", "gone", "changed")
    await bench.start()
    bench.told.clear()
    faults.add(FaultRule(action=Expire(), verb="watch", resource="configmaps", client="informer"))
    await bench.drop("gone")
    await bench.change("changed", "httpd")
    await bench.make("new")
    await bench.wait(5)
    assert bench.informer.relists == 1
    assert sorted(bench.told) == ["Added new", "Deleted gone", "Updated changed"]
    assert bench.names == ["changed", "kept", "new"]


async def test_a_compacted_history_relists(bench: Bench, faults: FaultPlan) -> None:
    await bench.make("a")
    await bench.start()
    faults.add(FaultRule(action=Compact(), verb="watch", resource="configmaps"))
    faults.order(Cut(), client="informer")
    await bench.drop("a")
    await bench.make("b")
    await bench.wait(60)
    assert bench.names == ["b"]
    assert bench.told == ["Added a", "Deleted a", "Added b"]


async def test_the_previous_state_is_served_until_the_new_list_is_complete(
    bench: Bench, faults: FaultPlan
) -> None:
    await bench.make("a", "b")
    await bench.start()
    seen: list[list[str]] = []
    bench.informer.add_handler(lambda change: seen.append(bench.names))
    seen.clear()
    faults.order(Expire(), client="informer")
    await bench.make("c")
    await bench.wait(5)
    assert seen == [["a", "b", "c"]], "no handler ever saw half a list"


async def test_a_repeated_event_is_delivered_once(bench: Bench, faults: FaultPlan) -> None:
    faults.add(FaultRule(action=Duplicate(), verb="watch", resource="configmaps", client="informer", times=0))
    await bench.make("a")
    await bench.start()
    await bench.change("a", "httpd")
    await bench.drop("a")
    await bench.wait()
    assert bench.told == ["Added a", "Updated a", "Deleted a"]


async def test_failures_back_off_between_0_8_and_30_seconds_and_report_the_reason(
    bench: Bench, faults: FaultPlan
) -> None:
    rule = faults.add(FaultRule(action=Drop(), verb="watch", resource="configmaps", times=0))
    bench.informer.start()
    await bench.wait(300)
    assert not bench.informer.synced.is_set()
    assert bench.informer.state is State.BACKING_OFF
    assert 12 <= rule.fired <= 30
    assert "watch" in bench.informer.describe() or "connection" in bench.informer.describe()
    faults.clear()
    await bench.wait(31)
    assert bench.informer.synced.is_set()
    assert bench.informer.trouble == ""


async def test_watches_that_failed_together_are_retried_at_different_times(
    harness: Harness, faults: FaultPlan
) -> None:
    faults.add(FaultRule(action=Drop(), verb="watch", resource="configmaps", times=0))
    benches = [Bench(harness, seed=seed) for seed in range(10)]
    for each in benches:
        each.informer.start()
    await harness.clock.sleep(600)
    waits = [[after - before for before, after in pairwise(each.tap.times)] for each in benches]
    for number in range(15):
        each_wait = [round(of_one[number], 2) for of_one in waits]
        assert len(set(each_wait)) > 5, f"wait {number + 1} of each: {each_wait}"
    assert all(0.8 <= wait <= 30.1 for of_one in waits for wait in of_one)
    for each in benches:
        await each.informer.stop()


async def test_a_kind_that_is_not_served_is_retried_until_it_is(harness: Harness) -> None:
    scope = WatchScope(App.gvk)
    informer = Informer(harness.connect("informer"), scope, kind=App)
    informer.start()
    await harness.clock.sleep(20)
    assert informer.state is State.MISSING
    assert (
        "the cluster does not serve example.com/v1/App: install its CustomResourceDefinition"
        in informer.describe()
    )
    await harness.install(App)
    await harness.apply(app("a"))
    await harness.clock.sleep(31)
    assert [each.name for each in informer.store] == ["a"]
    await informer.stop()


@pytest.mark.parametrize("failure", [RuntimeError, asyncio.CancelledError])
async def test_a_failing_handler_stops_neither_the_others_nor_the_watch(
    bench: Bench, failure: type[BaseException]
) -> None:
    def explode(change: Change) -> None:
        raise failure("no")

    bench.informer.add_handler(explode)
    second: list[str] = []
    bench.informer.add_handler(lambda change: second.append(change.object.name))
    await bench.start()
    await bench.make("a", "b")
    await bench.wait()
    assert second == ["a", "b"]
    assert bench.informer.state is State.WATCHING


async def test_a_handler_added_later_gets_the_stored_objects(bench: Bench) -> None:
    await bench.make("a")
    await bench.start()
    late: list[Change] = []
    bench.informer.add_handler(late.append)
    assert [(change.event, change.initial) for change in late] == [("Added", True)]


async def test_an_object_that_leaves_the_selection_is_deleted_from_the_store(bench: Bench) -> None:
    await bench.make("a")
    await bench.start()
    patch = {"metadata": {"labels": {"test": None}}}
    await bench.harness.client.patch("v1/ConfigMap", "a", patch, namespace="default")
    await bench.wait()
    assert bench.told == ["Added a", "Deleted a"]


async def test_metadata_only_stores_no_content(harness: Harness) -> None:
    bench = Bench(harness, scope=WatchScope(CONFIG_MAP, "default", labels="test", metadata_only=True))
    await bench.make("a")
    await bench.start()
    stored = bench.informer.store.get(Key("default", "a"))
    assert stored is not None
    assert "data" not in stored.to_dict()
    assert stored.labels == {"test": "1"}
    await bench.informer.stop()


async def test_metadata_only_stores_no_content_of_our_own_writes(harness: Harness) -> None:
    cache = Cache(harness.connect("informer"), namespaces=["default"])
    (informer,) = cache.watch("v1/Secret", metadata_only=True)
    cache.start()
    await informer.synced.wait()
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "namespace": "default"}}
    raw = await harness.client.apply({**secret, "stringData": {"password": "hidden"}}, into=bytes)
    cache.note_write(informer.scope.gvk, raw)
    for seconds in (0, 1):  # before the watch tells of it, and after
        await harness.clock.sleep(seconds)
        found = cache.get(informer.scope.gvk, Key("default", "a"))
        assert found is not None
        assert found.to_dict().keys() == {"apiVersion", "kind", "metadata"}
        assert found.to_dict()["kind"] == "Secret"
    await cache.stop()


async def test_our_own_write_is_not_parsed_again_when_the_watch_delivers_it(bench: Bench) -> None:
    await bench.start()
    made = config_map("a", labels={"test": "1"}, namespace="default")
    raw = await bench.harness.client.apply(made, into=bytes)
    written = bench.informer.store.note_write(bench.informer.parse(raw))
    await bench.wait()
    assert bench.told == ["Added a"]
    assert bench.informer.store.seen(Key("default", "a")) is written


async def test_a_list_without_changes_keeps_the_stored_objects(bench: Bench, faults: FaultPlan) -> None:
    await bench.make("a", "b")
    await bench.start()
    before = list(bench.informer.store)
    faults.add(FaultRule(action=Expire(), verb="watch", resource="configmaps", client="informer"))
    await bench.change("a", "httpd")
    await bench.wait(60)
    assert bench.informer.relists == 1
    after = list(bench.informer.store)
    assert [new is old for old, new in zip(before, after, strict=True)] == [False, True]


async def test_a_write_in_one_of_several_namespaces_is_returned_as_it_is_stored(harness: Harness) -> None:
    cache = Cache(harness.connect("informer"), namespaces=["default", "kube-public"])
    cache.watch("v1/ConfigMap")
    raw = await harness.client.apply(config_map("a", namespace="default"), into=bytes)
    assert cache.note_write(CONFIG_MAP, raw) is cache.get(CONFIG_MAP, Key("default", "a"))


async def test_equal_watches_are_shared_and_different_ones_are_not(harness: Harness) -> None:
    cache = Cache(harness.connect("informer"), namespaces=["default"])
    (first,) = cache.watch("v1/ConfigMap", labels={"a": "b"})
    (same,) = cache.watch("v1/ConfigMap", labels="a=b")
    (other,) = cache.watch("v1/ConfigMap")
    assert first is same
    assert first is not other
    with pytest.raises(ValueError, match="watch of v1/ConfigMap in default has two transforms"):
        cache.watch("v1/ConfigMap", transform=dict)


async def test_stopping_leaves_no_task_and_no_open_watch(harness: Harness) -> None:
    bench = Bench(harness)
    await bench.start()
    await bench.informer.stop()
    assert bench.informer.state is State.STOPPED
    assert harness.faults is not None
    assert harness.faults.order(Cut(), client="informer") == 0, "no watch of ours is open"
