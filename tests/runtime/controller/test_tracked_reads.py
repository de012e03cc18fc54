"""Tracked reads: a resource runs again when an object that it read has changed, appeared or disappeared."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kapsa.runtime import (
    Backoff,
    Context,
    Controller,
    Key,
    Operator,
    Requeue,
    StoredObject,
    TerminalError,
    Watch,
    generation_changed,
)
from kapsa.runtime.testing import Harness
from tests.runtime.sample_app import App, Recorder, app, config_map

pytestmark = pytest.mark.virtual_time

CONFIG_MAP = "v1/ConfigMap"
NAMESPACE = "v1/Namespace"


async def start(harness: Harness, controller: Controller[Any]) -> None:
    await harness.install(App)
    await harness.start(Operator(controllers=[controller]))


async def change(harness: Harness, name: str, value: str = "changed") -> None:
    await harness.apply(config_map(name, data={"value": value}, namespace="default"))


def subscriptions(harness: Harness) -> int:
    return len(harness.running["operator"].reconcilers[0].services.subscriptions)


async def read_image(resource: App, ctx: Context[App]) -> None:
    """Read the ConfigMap that the resource's spec names."""
    ctx.get(CONFIG_MAP, resource.spec.image, namespace="default", track=True)


def reader(work: Any = read_image, **attributes: Any) -> Recorder:
    return Recorder(work, watches=(Watch(CONFIG_MAP),), **attributes)


async def test_a_change_of_a_tracked_object_runs_its_readers_and_no_others(harness: Harness) -> None:
    await change(harness, "one", "first")
    controller = reader()
    await start(harness, controller)
    await harness.apply(app("a", image="one"), app("b", image="one"), app("c", image="other"))
    await harness.settle()
    controller.runs.clear()
    await change(harness, "one")
    await harness.settle()
    assert sorted(controller.runs) == ["a", "b"]


async def test_an_object_that_did_not_exist_when_it_was_read_runs_its_reader_when_it_appears(
    harness: Harness,
) -> None:
    controller = reader()
    await start(harness, controller)
    await harness.apply(app("a", image="late"))
    await harness.settle()
    controller.runs.clear()
    await change(harness, "late")
    await harness.settle()
    assert controller.runs == ["a"]


async def test_an_object_that_is_deleted_runs_its_reader(harness: Harness) -> None:
    await change(harness, "one")
    controller = reader()
    await start(harness, controller)
    await harness.apply(app("a", image="one"))
    await harness.settle()
    controller.runs.clear()
    await harness.client.delete(CONFIG_MAP, "one", namespace="default")
    await harness.settle()
    assert controller.runs == ["a"]


async def test_a_read_that_is_not_tracked_causes_no_run(harness: Harness) -> None:
    async def read(resource: App, ctx: Context[App]) -> None:
        ctx.get(CONFIG_MAP, "one")

    controller = reader(read)
    await start(harness, controller)
    await harness.apply(app("a"))
    await harness.settle()
    controller.runs.clear()
    await change(harness, "one")
    await harness.settle()
    assert controller.runs == []


async def test_a_change_during_the_run_after_the_read_is_not_lost(harness: Harness) -> None:
    seen: list[Any] = []

    async def slowly(resource: App, ctx: Context[App]) -> None:
        seen.append(ctx.get(CONFIG_MAP, "one", track=True))
        await asyncio.sleep(10)

    controller = reader(slowly)
    await start(harness, controller)
    await harness.apply(app("a"))
    await harness.clock.sleep(5)
    await change(harness, "one")
    await harness.settle()
    assert [each is not None for each in seen] == [False, True]


async def test_a_completed_run_replaces_the_subscriptions_of_the_runs_before_it(harness: Harness) -> None:
    controller = reader()
    await start(harness, controller)
    await harness.apply(app("a", image="one"))
    await harness.settle()
    await harness.apply(app("a", image="two"))
    await harness.settle()
    controller.runs.clear()
    await change(harness, "one")
    await harness.settle()
    assert controller.runs == []
    await change(harness, "two")
    await harness.settle()
    assert controller.runs == ["a"]


async def test_a_run_that_fails_keeps_the_subscriptions_that_would_run_it_again(harness: Harness) -> None:
    async def read_or_fail(resource: App, ctx: Context[App]) -> None:
        if resource.spec.replicas > 1:
            ctx.get(CONFIG_MAP, "new", namespace="default", track=True)
            raise TerminalError("too many replicas")
        ctx.get(CONFIG_MAP, "one", namespace="default", track=True)

    controller = reader(read_or_fail)
    await start(harness, controller)
    await harness.apply(app("a"))
    await harness.settle()
    await harness.apply(app("a", replicas=2))
    await harness.settle()
    assert subscriptions(harness) == 2, "the failed run added to the subscriptions and dropped none"
    await harness.apply(app("a", replicas=1))
    await harness.settle()
    assert subscriptions(harness) == 1


async def test_a_resource_that_fails_for_ever_keeps_only_the_subscriptions_of_its_last_run(
    harness: Harness,
) -> None:
    async def fail(resource: App, ctx: Context[App]) -> None:
        ctx.get(CONFIG_MAP, f"run-{len(controller.runs)}", namespace="default", track=True)
        raise RuntimeError("always")

    controller = reader(fail, retry_backoff=Backoff(max=1))
    await start(harness, controller)
    await harness.apply(app("a"))
    await harness.clock.sleep(100)
    assert len(controller.runs) > 50
    assert subscriptions(harness) == 1


async def test_a_resource_that_fails_without_its_object_runs_when_the_object_appears(
    harness: Harness,
) -> None:
    async def need(resource: App, ctx: Context[App]) -> None:
        if ctx.get(CONFIG_MAP, "one", track=True) is None:
            raise RuntimeError("no ConfigMap")
        ctx.status.ready = 1

    await start(harness, reader(need))
    await harness.apply(app("a"))
    await harness.clock.sleep(3000)  # the next retry is far away
    await change(harness, "one")
    await harness.clock.sleep(1)
    assert (await harness.get(App, "a")).status.ready == 1


async def test_the_subscriptions_of_a_resource_are_dropped_when_it_is_gone(harness: Harness) -> None:
    controller = reader()
    await start(harness, controller)
    await harness.apply(app("a", image="one"), app("b", image="two"))
    await harness.settle()
    assert subscriptions(harness) == 2
    await harness.client.delete(App, "a", namespace="default")
    await harness.settle()
    assert subscriptions(harness) == 1


async def test_a_resource_that_is_gone_while_it_runs_leaves_no_subscription(harness: Harness) -> None:
    async def slowly(resource: App, ctx: Context[App]) -> None:
        await asyncio.sleep(10)
        ctx.get(CONFIG_MAP, "one", track=True)

    await start(harness, reader(slowly))
    await harness.apply(app("a"))
    await harness.clock.sleep(5)
    await harness.client.delete(App, "a", namespace="default")
    await harness.settle()
    assert subscriptions(harness) == 0


async def test_finalize_runs_again_when_an_object_that_it_read_has_changed(harness: Harness) -> None:
    class Cleaner(Recorder):
        async def finalize(self, resource: App, ctx: Context[App]) -> Any:
            blocked = ctx.get(CONFIG_MAP, "lock", track=True) is not None
            return Requeue(after=86_000) if blocked else None

    await change(harness, "lock")
    await start(harness, Cleaner(watches=(Watch(CONFIG_MAP),)))
    await harness.apply(app("a"))
    await harness.settle()
    await harness.client.delete(App, "a", namespace="default")
    await harness.clock.sleep(60)
    assert await harness.get(App, "a") is not None
    await harness.client.delete(CONFIG_MAP, "lock", namespace="default")
    await harness.clock.sleep(60)
    assert await harness.get(App, "a") is None


@pytest.mark.parametrize("namespace", [None, ""], ids=["default", "cluster"])
async def test_a_cluster_scoped_object_can_be_tracked(harness: Harness, namespace: str | None) -> None:
    async def read(resource: App, ctx: Context[App]) -> None:
        ctx.get(NAMESPACE, "team", namespace=namespace, track=True)

    controller = Recorder(read, watches=(Watch(NAMESPACE),))
    await start(harness, controller)
    await harness.apply(app("a"))
    await harness.settle()
    controller.runs.clear()
    await harness.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    await harness.settle()
    assert set(controller.runs) == {"a"}


async def test_an_object_that_is_read_with_the_client_can_be_tracked_by_name(harness: Harness) -> None:
    async def read(resource: App, ctx: Context[App]) -> None:
        ctx.track(CONFIG_MAP, "one", namespace="default")

    controller = Recorder(read, watches=(Watch(CONFIG_MAP, metadata_only=True),))
    await start(harness, controller)
    await harness.apply(app("a"))
    await harness.settle()
    controller.runs.clear()
    await change(harness, "one")
    await harness.settle()
    assert controller.runs == ["a"]


async def test_the_predicates_of_the_watch_apply_to_tracked_objects(harness: Harness) -> None:
    async def read(resource: App, ctx: Context[App]) -> None:
        if resource.name == "a":
            ctx.get(App, "b", track=True)

    controller = Recorder(read, watches=(Watch(App, predicates=(generation_changed,)),))
    await start(harness, controller)
    await harness.apply(app("a"), app("b"))
    await harness.settle()
    controller.runs.clear()
    await harness.apply(app("b", labels={"seen": "yes"}))
    await harness.settle()
    assert controller.runs == ["b"]
    await harness.apply(app("b", image="httpd", labels={"seen": "yes"}))
    await harness.settle()
    assert sorted(controller.runs) == ["a", "b", "b"]


async def test_an_object_that_is_both_mapped_and_tracked_runs_the_resource_once(harness: Harness) -> None:
    controller = Recorder(read_image, watches=(Watch(CONFIG_MAP, map=lambda stored: [("default", "a")]),))
    await start(harness, controller)
    await harness.apply(app("a", image="one"))
    await harness.settle()
    controller.runs.clear()
    await change(harness, "one")
    await harness.settle()
    assert controller.runs == ["a"]


async def test_a_map_that_fails_does_not_keep_the_readers_from_running(harness: Harness) -> None:
    def fail(stored: StoredObject) -> list[Key]:
        raise KeyError("no label")

    controller = Recorder(read_image, watches=(Watch(CONFIG_MAP, map=fail),))
    await start(harness, controller)
    await harness.apply(app("a", image="one"))
    await harness.settle()
    controller.runs.clear()
    await change(harness, "one")
    await harness.clock.sleep(5)
    assert controller.runs == ["a"]


async def test_the_resources_own_write_to_a_tracked_object_causes_no_run(harness: Harness) -> None:
    async def write(resource: App, ctx: Context[App]) -> None:
        ctx.get(CONFIG_MAP, "one", track=True)
        await ctx.apply(config_map("one", data={"image": resource.spec.image}), owner=False)

    controller = reader(write)
    await start(harness, controller)
    await harness.apply(app("a"))
    await harness.settle()
    assert controller.runs == ["a"]


async def test_one_resources_write_to_a_tracked_object_runs_the_other_readers(harness: Harness) -> None:
    async def write(resource: App, ctx: Context[App]) -> None:
        ctx.get(CONFIG_MAP, "one", track=True)
        if resource.name == "writer":
            await ctx.apply(config_map("one", data={"image": resource.spec.image}), owner=False)

    controller = reader(write)
    await start(harness, controller)
    await harness.apply(app("reader"))
    await harness.settle()
    controller.runs.clear()
    await harness.apply(app("writer"))
    await harness.settle()
    assert sorted(controller.runs) == ["reader", "writer"]


async def test_every_resource_subscribes_again_after_a_restart(harness: Harness) -> None:
    controller = reader()
    await start(harness, controller)
    await harness.apply(app("a", image="one"))
    await harness.settle()
    await harness.kill()
    await harness.start(Operator(controllers=[controller]))
    await harness.settle()
    controller.runs.clear()
    await change(harness, "one")
    await harness.settle()
    assert controller.runs == ["a"]


async def test_a_kind_that_is_not_watched_cannot_be_tracked(harness: Harness) -> None:
    caught: list[str] = []

    async def read(resource: App, ctx: Context[App]) -> None:
        try:
            ctx.get(CONFIG_MAP, "one", track=True)
        except TypeError as error:
            caught.append(str(error))

    await start(harness, Recorder(read, reads=(CONFIG_MAP,)))
    await harness.apply(app("a"))
    await harness.settle()
    assert caught == [
        "Recorder cannot track v1/ConfigMap: declare Watch('v1/ConfigMap') in its watches, or call ctx.watch"
    ]
