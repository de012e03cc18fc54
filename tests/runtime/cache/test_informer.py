"""The informer: it stays in step with the cluster when streams end, fail, repeat or fall silent."""

from __future__ import annotations

import asyncio
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
from kapsa.runtime import Change, Informer, Key
from kapsa.runtime.cache.cache import Cache
from kapsa.runtime.cache.informer import SILENCE_SECONDS, State, WatchScope
from kapsa.runtime.testing import Harness
from tests.runtime.cache.informer_fixture import CONFIG_MAP, InformerFixture
from tests.runtime.sample_app import App, app, config_map

pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def fixture(harness: Harness) -> Any:
    made = InformerFixture(harness)
    yield made
    await made.informer.stop()


async def test_it_lists_by_stream_and_follows_every_change(fixture: InformerFixture) -> None:
    await fixture.make("a", "b")
    await fixture.start()
    assert fixture.informer.state is State.WATCHING
    assert fixture.transport.lists == [], "the list was streamed over the watch"
    assert sorted(fixture.delivered) == ["Added a", "Added b"]
    await fixture.make("c")
    await fixture.change("a", "httpd")
    await fixture.drop("b")
    await fixture.wait()
    assert fixture.delivered[2:] == ["Added c", "Updated a", "Deleted b"]
    assert fixture.names == ["a", "c"]


async def test_lists_are_read_in_pages_if_the_server_does_not_stream_them(
    fixture: InformerFixture, faults: FaultPlan
) -> None:
    faults.add(FaultRule(action=Answer(code=422, reason="Invalid"), verb="watch", resource="configmaps"))
    await fixture.make("a", "b")
    await fixture.start()
    assert fixture.names == ["a", "b"]
    assert len(fixture.transport.lists) == 1
    await fixture.make("c")
    await fixture.wait()
    assert fixture.names == ["a", "b", "c"]


async def test_initial_events_are_never_requested_on_a_resumed_watch(
    fixture: InformerFixture, faults: FaultPlan
) -> None:
    await fixture.start()
    await fixture.make("a")
    await fixture.wait()
    version = fixture.informer.resource_version
    faults.order(Cut(), client="informer")
    await fixture.wait(30)
    first, second = fixture.transport.watches[:2]
    assert "sendInitialEvents" in first
    assert "resourceVersion" not in first
    assert "sendInitialEvents" not in second
    assert second["resourceVersion"] == version
    await fixture.make("b")
    await fixture.wait()
    assert fixture.delivered == ["Added a", "Added b"]


async def test_every_watch_requests_bookmarks_and_ends_after_5_to_10_minutes(
    fixture: InformerFixture,
) -> None:
    await fixture.start()
    await fixture.wait(7200)
    times = [int(query["timeoutSeconds"]) for query in fixture.transport.watches]
    assert all(300 <= seconds <= 600 for seconds in times)
    assert len(set(times)) > 5, "at random"
    assert all(query["allowWatchBookmarks"] == "true" for query in fixture.transport.watches)
    assert fixture.informer.relists == 0


async def test_a_watch_that_goes_silent_is_restarted(fixture: InformerFixture, faults: FaultPlan) -> None:
    await fixture.start()
    await fixture.make("a")
    await fixture.wait(90)
    faults.order(Silence(), client="informer")
    await fixture.make("b")
    await fixture.wait(10)
    assert fixture.names == ["a"]
    await fixture.wait(SILENCE_SECONDS)
    assert fixture.informer.restarts == 1
    assert fixture.names == ["a", "b"]
    assert fixture.delivered == ["Added a", "Added b"]


async def test_410_in_mid_stream_relists_and_derives_the_deletes(
    fixture: InformerFixture, faults: FaultPlan
) -> None:
    await fixture.make("kept", "gone", "changed")
    await fixture.start()
    fixture.delivered.clear()
    faults.add(FaultRule(action=Expire(), verb="watch", resource="configmaps", client="informer"))
    await fixture.drop("gone")
    await fixture.change("changed", "httpd")
    await fixture.make("new")
    await fixture.wait(5)
    assert fixture.informer.relists == 1
    assert sorted(fixture.delivered) == ["Added new", "Deleted gone", "Updated changed"]
    assert fixture.names == ["changed", "kept", "new"]


async def test_a_compacted_history_relists(fixture: InformerFixture, faults: FaultPlan) -> None:
    await fixture.make("a")
    await fixture.start()
    faults.add(FaultRule(action=Compact(), verb="watch", resource="configmaps"))
    faults.order(Cut(), client="informer")
    await fixture.drop("a")
    await fixture.make("b")
    await fixture.wait(60)
    assert fixture.names == ["b"]
    assert fixture.delivered == ["Added a", "Deleted a", "Added b"]


async def test_watches_that_expire_right_after_each_list_are_retried_with_back_off(
    fixture: InformerFixture, faults: FaultPlan
) -> None:
    faults.add(FaultRule(action=Answer(code=422, reason="Invalid"), verb="watch", resource="configmaps"))
    rule = FaultRule(action=Answer(code=410, reason="Expired"), verb="watch", resource="configmaps", times=0)
    faults.add(rule)
    await fixture.make("a")
    await fixture.start()
    await fixture.wait(300)
    assert 12 <= rule.fired <= 30
    faults.clear()
    await fixture.wait(31)
    await fixture.make("b")
    await fixture.wait()
    assert fixture.names == ["a", "b"]
    relists = fixture.informer.relists
    faults.order(Expire(), client="informer")
    await fixture.make("c")
    await fixture.wait(0.5)
    assert fixture.informer.relists == relists + 1, "it had delivered an event: it is listed again at once"


async def test_the_previous_state_is_served_until_the_new_list_is_complete(
    fixture: InformerFixture, faults: FaultPlan
) -> None:
    await fixture.make("a", "b")
    await fixture.start()
    seen: list[list[str]] = []
    fixture.informer.add_handler(lambda change: seen.append(fixture.names))
    seen.clear()
    faults.order(Expire(), client="informer")
    await fixture.make("c")
    await fixture.wait(5)
    assert seen == [["a", "b", "c"]], "no handler got an incomplete list"


async def test_a_repeated_event_is_delivered_once(fixture: InformerFixture, faults: FaultPlan) -> None:
    faults.add(FaultRule(action=Duplicate(), verb="watch", resource="configmaps", client="informer", times=0))
    await fixture.make("a")
    await fixture.start()
    await fixture.change("a", "httpd")
    await fixture.drop("a")
    await fixture.wait()
    assert fixture.delivered == ["Added a", "Updated a", "Deleted a"]


async def test_failures_back_off_between_0_8_and_30_seconds_and_report_the_reason(
    fixture: InformerFixture, faults: FaultPlan
) -> None:
    rule = faults.add(FaultRule(action=Drop(), verb="watch", resource="configmaps", times=0))
    fixture.informer.start()
    await fixture.wait(300)
    assert not fixture.informer.synced.is_set()
    assert fixture.informer.state is State.BACKING_OFF
    assert 12 <= rule.fired <= 30
    assert "watch" in fixture.informer.describe() or "connection" in fixture.informer.describe()
    faults.clear()
    await fixture.wait(31)
    assert fixture.informer.synced.is_set()
    assert fixture.informer.trouble == ""


async def test_watches_that_failed_together_are_retried_at_different_times(
    harness: Harness, faults: FaultPlan
) -> None:
    faults.add(FaultRule(action=Drop(), verb="watch", resource="configmaps", times=0))
    benches = [InformerFixture(harness, seed=seed) for seed in range(10)]
    for each in benches:
        each.informer.start()
    await harness.clock.sleep(600)
    waits = [[after - before for before, after in pairwise(each.transport.times)] for each in benches]
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
    fixture: InformerFixture, failure: type[BaseException]
) -> None:
    def explode(change: Change) -> None:
        raise failure("no")

    fixture.informer.add_handler(explode)
    second: list[str] = []
    fixture.informer.add_handler(lambda change: second.append(change.object.name))
    await fixture.start()
    await fixture.make("a", "b")
    await fixture.wait()
    assert second == ["a", "b"]
    assert fixture.informer.state is State.WATCHING


async def test_a_handler_added_later_gets_the_stored_objects(fixture: InformerFixture) -> None:
    await fixture.make("a")
    await fixture.start()
    late: list[Change] = []
    fixture.informer.add_handler(late.append)
    assert [(change.event, change.initial) for change in late] == [("Added", True)]


async def test_an_object_that_leaves_the_selection_is_deleted_from_the_store(
    fixture: InformerFixture,
) -> None:
    await fixture.make("a")
    await fixture.start()
    patch = {"metadata": {"labels": {"test": None}}}
    await fixture.harness.client.patch("v1/ConfigMap", "a", patch, namespace="default")
    await fixture.wait()
    assert fixture.delivered == ["Added a", "Deleted a"]


async def test_metadata_only_stores_no_content(harness: Harness) -> None:
    fixture = InformerFixture(
        harness, scope=WatchScope(CONFIG_MAP, "default", labels="test", metadata_only=True)
    )
    await fixture.make("a")
    await fixture.start()
    stored = fixture.informer.store.get(Key("default", "a"))
    assert stored is not None
    assert "data" not in stored.to_dict()
    assert stored.labels == {"test": "1"}
    await fixture.informer.stop()


async def test_metadata_only_stores_no_content_of_our_own_writes(harness: Harness) -> None:
    cache = Cache(harness.connect("informer"), namespaces=["default"])
    (informer,) = cache.watch("v1/Secret", metadata_only=True)
    cache.start()
    await informer.synced.wait()
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "namespace": "default"}}
    raw = await harness.client.apply({**secret, "stringData": {"password": "hidden"}}, into=bytes)
    cache.note_write(informer.scope.gvk, raw)
    for seconds in (0, 1):  # before the watch delivers it, and after
        await harness.clock.sleep(seconds)
        stored = cache.get(informer.scope.gvk, Key("default", "a"))
        assert stored is not None
        assert stored.to_dict().keys() == {"apiVersion", "kind", "metadata"}
        assert stored.to_dict()["kind"] == "Secret"
    await cache.stop()


async def test_our_own_write_is_not_parsed_again_when_the_watch_delivers_it(fixture: InformerFixture) -> None:
    await fixture.start()
    made = config_map("a", labels={"test": "1"}, namespace="default")
    raw = await fixture.harness.client.apply(made, into=bytes)
    written = fixture.informer.store.note_write(fixture.informer.parse(raw))
    await fixture.wait()
    assert fixture.delivered == ["Added a"]
    assert fixture.informer.store.ahead == 0
    assert fixture.informer.store.get(Key("default", "a")) is written


async def test_a_list_without_changes_keeps_the_stored_objects(
    fixture: InformerFixture, faults: FaultPlan
) -> None:
    await fixture.make("a", "b")
    await fixture.start()
    before = list(fixture.informer.store)
    faults.add(FaultRule(action=Expire(), verb="watch", resource="configmaps", client="informer"))
    await fixture.change("a", "httpd")
    await fixture.wait(60)
    assert fixture.informer.relists == 1
    after = list(fixture.informer.store)
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
    fixture = InformerFixture(harness)
    await fixture.start()
    await fixture.informer.stop()
    assert fixture.informer.state is State.STOPPED
    assert harness.faults is not None
    assert harness.faults.order(Cut(), client="informer") == 0, "no watch is open"


async def test_a_new_list_that_several_request_at_once_is_made_once(harness: Harness) -> None:
    fixture = InformerFixture(harness)
    await fixture.start()
    await harness.clock.sleep(60)
    since = harness.clock.monotonic()
    for _ in range(5):
        fixture.informer.refresh(since)
        await asyncio.sleep(0)
    await fixture.informer.wait_until_listed(since)
    assert fixture.informer.relists == 1


async def test_an_object_that_can_no_longer_be_parsed_is_not_reported_as_deleted_by_a_relist(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixture = InformerFixture(harness)
    await fixture.make("a", "b")
    await fixture.start()
    parse = fixture.informer.parse

    def broken(raw: bytes) -> Any:
        if b'"name":"a"' in bytes(raw).replace(b": ", b":"):
            raise ValueError("unexpected form")
        return parse(raw)

    monkeypatch.setattr(fixture.informer, "parse", broken)
    fixture.informer.refresh(harness.clock.monotonic())
    await harness.clock.sleep(60)
    assert fixture.informer.relists == 1
    assert sorted(key.name for key in (each.key for each in fixture.informer.store)) == ["a", "b"]
    assert not [each for each in fixture.delivered if each.startswith("Deleted")]
    await fixture.drop("a")
    await harness.clock.sleep(5)
    assert [each for each in fixture.delivered if each.startswith("Deleted")] == ["Deleted a"]
