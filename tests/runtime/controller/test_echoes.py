"""Echoes: a run's own writes cause no further run of its resource, and hide no change by another party."""

from __future__ import annotations

from typing import Any

import pytest

from kapsa.devcluster.faults import FaultPlan, Silence
from kapsa.runtime import Context, Controller, Key, Operator, Owns, StoredObject, Watch
from kapsa.runtime.resources.merge_patch import changes
from kapsa.runtime.testing import Harness
from tests.runtime.sample_app import App, Recorder, app, config_map

pytestmark = pytest.mark.virtual_time

CONFIG_MAP = "v1/ConfigMap"
SECRET = "v1/Secret"
MARK = {"metadata": {"annotations": {"seen": "yes"}}}


def to_web(stored: StoredObject) -> list[Key]:
    return [Key("default", "web")]


def kicked(work: Any, **attributes: Any) -> Recorder:
    """Return a controller whose resource `web` runs whenever a Secret is created."""
    return Recorder(work, watches=(Watch(SECRET, to_web),), **attributes)


async def start(harness: Harness, *controllers: Controller[Any]) -> None:
    await harness.install(App)
    await harness.start(Operator(controllers=controllers))
    await harness.apply(app("web"))
    await harness.settle()


async def run_before_the_watch_delivers(
    harness: Harness, faults: FaultPlan, resource: str, kind: Any, patch: Any
) -> None:
    """Patch an object as another party, and run `web` before the operator's watch delivers that."""
    faults.order(Silence(), client="operator", resource=resource)
    await harness.client.patch(kind, "web", patch, namespace="default")
    await harness.apply(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "kick", "namespace": "default"}}
    )
    await harness.clock.sleep(1)


async def test_a_patch_that_changes_nothing_does_not_hide_a_change_of_the_spec(
    harness: Harness, faults: FaultPlan
) -> None:
    seen: list[str] = []

    async def mark(resource: App, ctx: Context[App]) -> None:
        seen.append(resource.spec.image)
        await ctx.patch(App, "web", MARK)

    await start(harness, kicked(mark))
    await run_before_the_watch_delivers(harness, faults, "apps", App, {"spec": {"image": "httpd"}})
    assert seen[-1] == "nginx", "the run began with the old spec"
    await harness.clock.sleep(600)
    await harness.settle()
    assert seen[-1] == "httpd"


async def test_a_patch_that_changes_nothing_does_not_hide_a_change_of_a_child(
    harness: Harness, faults: FaultPlan
) -> None:
    seen: list[str | None] = []

    async def mark(resource: App, ctx: Context[App]) -> None:
        child = ctx.get(CONFIG_MAP, "web") or await ctx.apply(config_map("web"))
        seen.append(child["data"].get("more"))
        await ctx.patch(CONFIG_MAP, "web", MARK)

    await start(harness, kicked(mark, owns=(CONFIG_MAP,)))
    await run_before_the_watch_delivers(harness, faults, "configmaps", CONFIG_MAP, {"data": {"more": "yes"}})
    assert seen[-1] is None, "the run began with the old child"
    await harness.clock.sleep(600)
    await harness.settle()
    assert seen[-1] == "yes"


async def test_a_second_delete_does_not_hide_the_removal_of_a_finalizer(
    harness: Harness, faults: FaultPlan
) -> None:
    seen: list[list[str]] = []

    async def replace(resource: App, ctx: Context[App]) -> None:
        child = ctx.get(CONFIG_MAP, "web") or await ctx.apply(
            config_map("web", finalizers=["example.com/a", "example.com/b"])
        )
        seen.append(child["metadata"]["finalizers"])
        await ctx.delete(CONFIG_MAP, "web")

    await start(harness, kicked(replace, owns=(Owns(CONFIG_MAP, deletes=True),)))
    left = {"metadata": {"finalizers": ["example.com/b"]}}
    await run_before_the_watch_delivers(harness, faults, "configmaps", CONFIG_MAP, left)
    assert len(seen[-1]) == 2, "the run began with the old child"
    await harness.clock.sleep(600)
    await harness.settle()
    assert seen[-1] == ["example.com/b"]


async def test_a_patch_that_changes_the_child_causes_no_further_run(harness: Harness) -> None:
    async def copy_image(resource: App, ctx: Context[App]) -> None:
        if ctx.get(CONFIG_MAP, "web") is None:
            await ctx.apply(config_map("web"))
        await ctx.patch(CONFIG_MAP, "web", {"data": {"copy": resource.spec.image}})

    controller = kicked(copy_image, owns=(CONFIG_MAP,))
    await start(harness, controller)
    controller.runs.clear()
    await harness.apply(app("web", image="httpd"))
    await harness.settle()
    assert controller.runs == ["web"]


async def test_an_own_write_that_maps_to_another_resource_runs_that_one_alone(harness: Harness) -> None:
    async def share(resource: App, ctx: Context[App]) -> None:
        if resource.name == "web":
            await ctx.apply(config_map("shared", data={"image": resource.spec.image}))

    def to_both(stored: StoredObject) -> list[Key]:
        return [Key("default", "web"), Key("default", "other")]

    controller = Recorder(share, watches=(Watch(CONFIG_MAP, to_both),))
    await start(harness, controller)
    await harness.apply(app("other"))
    await harness.settle()
    controller.runs.clear()
    await harness.apply(app("web", image="httpd"))
    await harness.settle()
    assert controller.runs == ["web", "other"]


async def test_an_own_write_to_a_resource_whose_kind_is_watched_too_causes_no_further_run(
    harness: Harness,
) -> None:
    async def report(resource: App, ctx: Context[App]) -> None:
        ctx.get(App, "web", track=True)
        ctx.status.ready = resource.spec.replicas

    controller = Recorder(report, watches=(Watch(App, to_web),))
    await start(harness, controller)
    controller.runs.clear()
    await harness.apply(app("web", replicas=3))
    await harness.settle()
    assert controller.runs == ["web"]


@pytest.mark.parametrize(
    ("patch", "document", "expected"),
    [
        ({}, {"a": 1}, False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": 2}, {"a": 1}, True),
        ({"a": True}, {"a": 1}, True),
        ({"a": None}, {"b": 1}, False),
        ({"a": None}, {"a": 1}, True),
        ({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}}, False),
        ({"a": {"b": None}}, {}, True),
        ({"a": [1]}, {"a": [1, 2]}, True),
        ([], {}, True),
    ],
)
def test_a_merge_patch_changes_a_document_or_not(patch: Any, document: Any, expected: bool) -> None:
    assert changes(patch, document) is expected
