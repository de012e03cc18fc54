"""Reads of the cache: a controller sees the objects that it declares, and may index any of its kinds."""

from __future__ import annotations

from typing import Any

import pytest

from kapsa.runtime import Context, Operator, Owns, Reads, StoredObject, Watch
from kapsa.runtime.testing import Harness
from tests.runtime.sample_app import App, Recorder, app, config_map

pytestmark = pytest.mark.virtual_time


async def test_a_list_has_no_objects_of_another_controllers_selector(harness: Harness) -> None:
    seen: dict[str, set[str]] = {}

    def reader(name: str) -> Any:
        async def read(resource: App, ctx: Context[App]) -> None:
            seen[name] = {each["metadata"]["name"] for each in ctx.list("v1/ConfigMap")}
            seen[f"{name} gets"] = {
                each for each in ("red", "blue") if ctx.get("v1/ConfigMap", each) is not None
            }

        return read

    controllers = [
        Recorder(reader(colour), name=colour, reads=[Reads("v1/ConfigMap", labels={"colour": colour})])
        for colour in ("red", "blue")
    ]
    await harness.install(App)
    await harness.apply(
        app("a"),
        *(config_map(colour, namespace="default", labels={"colour": colour}) for colour in ("red", "blue")),
    )
    await harness.start(Operator(controllers=controllers))
    await harness.settle()
    assert seen == {"red": {"red"}, "blue": {"blue"}, "red gets": {"red"}, "blue gets": {"blue"}}


async def test_a_controller_reads_whole_objects_although_another_caches_their_metadata(
    harness: Harness,
) -> None:
    seen: list[Any] = []

    async def read(resource: App, ctx: Context[App]) -> None:
        settings = ctx.get("v1/ConfigMap", "settings")
        seen.append(settings and settings.get("data"))

    controllers = [
        Recorder(name="first", reads=[Reads("v1/ConfigMap", metadata_only=True)]),
        Recorder(read, name="second", reads=["v1/ConfigMap"]),
    ]
    await harness.install(App)
    await harness.apply(app("a"), config_map("settings", namespace="default"))
    await harness.start(Operator(controllers=controllers))
    await harness.settle()
    assert {str(each) for each in seen} == {"{'image': 'nginx'}"}


@pytest.mark.parametrize("declare", [Owns, Watch, Reads], ids=lambda declare: declare.__name__)
async def test_an_index_of_any_declared_kind_can_be_looked_up(harness: Harness, declare: Any) -> None:
    def by_image(stored: StoredObject) -> list[str]:
        return [stored.to_dict()["data"]["image"]]

    names: list[list[str]] = []

    async def look_up(resource: App, ctx: Context[App]) -> None:
        names.append([each["metadata"]["name"] for each in ctx.find("v1/ConfigMap", "image", "httpd")])

    declared = declare("v1/ConfigMap", indexes={"image": by_image})
    attribute = {"Owns": "owns", "Watch": "watches", "Reads": "reads"}[declare.__name__]
    await harness.install(App)
    await harness.apply(
        app("a"),
        config_map("one", namespace="default"),
        config_map("two", namespace="default", data={"image": "httpd"}),
    )
    await harness.start(Operator(controllers=[Recorder(look_up, **{attribute: [declared]})]))
    await harness.settle()
    assert names == [["two"]]


async def test_one_step_for_each_run_goes_on_with_a_requeue_since_own_writes_wake_nobody(
    harness: Harness,
) -> None:
    from kapsa.runtime import Requeue

    async def step(resource: App, ctx: Context[App]) -> Requeue | None:
        if ctx.status.ready >= 3:
            return None
        ctx.status.ready += 1
        return Requeue(after=0) if resource.spec.image == "again" else None

    controller = Recorder(step)
    await harness.install(App)
    await harness.start(Operator(controllers=[controller]))
    await harness.apply(app("waits"), app("goes-on", image="again"))
    await harness.settle()
    assert (await harness.get(App, "waits")).status.ready == 1
    assert (await harness.get(App, "goes-on")).status.ready == 3
