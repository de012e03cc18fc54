"""Predicates and maps that raise: no change is lost, and the failure is reported once."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from kapsa.runtime import Change, Controller, Key, Operator, Owns, StoredObject, Watch
from kapsa.runtime.testing import Harness
from tests.runtime.sample_app import App, Recorder, app, config_map

pytestmark = pytest.mark.virtual_time


async def start(harness: Harness, controller: Controller[Any]) -> None:
    await harness.install(App)
    await harness.start(Operator(controllers=[controller]))
    await harness.settle()


def failures(harness: Harness, step: str) -> float:
    counter = harness.running["operator"].metrics.trigger_failures
    return counter.labels("app", step).value


class FlakyMap:
    """A map to the resource `a` that raises a number of times."""

    def __init__(self, times: int) -> None:
        self.times = times

    def __call__(self, stored: StoredObject) -> list[Key]:
        if self.times:
            self.times -= 1
            raise KeyError("label")
        return [Key("default", "a")] if stored.name == "settings" else []


async def test_a_change_whose_map_raises_is_mapped_again_until_it_works(harness: Harness) -> None:
    flaky = FlakyMap(0)
    controller = Recorder(watches=[Watch("v1/ConfigMap", map=flaky)])
    await start(harness, controller)
    await harness.apply(app("a"), app("b"))
    await harness.settle()
    controller.runs.clear()
    flaky.times = 3
    with capture_logs() as logs:
        await harness.apply(config_map("settings", namespace="default"))
        await harness.settle()
    assert controller.runs == ["a"]
    assert failures(harness, "map") == 3
    assert [each["event"] for each in logs if "map failed" in each["event"]] == [
        "map failed: the change is mapped again with back-off"
    ]


async def test_a_delete_whose_map_raises_runs_the_resource_that_the_object_concerned(
    harness: Harness,
) -> None:
    flaky = FlakyMap(0)
    controller = Recorder(watches=[Watch("v1/ConfigMap", map=flaky)])
    await start(harness, controller)
    await harness.apply(app("a"), config_map("settings", namespace="default"))
    await harness.settle()
    controller.runs.clear()
    flaky.times = 2
    await harness.client.delete("v1/ConfigMap", "settings", namespace="default")
    await harness.settle()
    assert controller.runs == ["a"]


async def test_all_resources_run_instead_of_a_map_that_keeps_raising(harness: Harness) -> None:
    flaky = FlakyMap(0)
    controller = Recorder(watches=[Watch("v1/ConfigMap", map=flaky)])
    await start(harness, controller)
    await harness.apply(app("a"), app("b"))
    await harness.settle()
    controller.runs.clear()
    flaky.times = 10**6
    await harness.apply(config_map("settings", namespace="default"))
    await harness.clock.sleep(300)
    assert sorted(controller.runs) == ["a", "b"]
    assert failures(harness, "map") == 8


async def test_a_flood_of_unmapped_changes_runs_each_resource_a_few_times_only(harness: Harness) -> None:
    flaky = FlakyMap(0)
    controller = Recorder(watches=[Watch("v1/ConfigMap", map=flaky)])
    await start(harness, controller)
    await harness.apply(app("a"))
    await harness.settle()
    controller.runs.clear()
    flaky.times = 10**6
    await harness.apply(*(config_map(f"c{number}", namespace="default") for number in range(1200)))
    await harness.clock.sleep(600)
    assert 1 <= len(controller.runs) <= 12


@pytest.mark.parametrize("declared", ["resource", "owned"])
async def test_a_predicate_that_raises_counts_as_true(harness: Harness, declared: str) -> None:
    def broken(change: Change) -> bool:
        if change.new is not None and change.new.labels.get("tier") == "bad":
            raise RuntimeError("no tier")
        return False

    async def child(resource: App, ctx: Any) -> None:
        await ctx.apply(config_map("child"))

    if declared == "resource":
        controller = Recorder(predicates=[broken])
    else:
        controller = Recorder(child, owns=[Owns("v1/ConfigMap", predicates=(broken,))])
    await start(harness, controller)
    await harness.apply(app("a"))
    await harness.settle()
    controller.runs.clear()
    labels = {"tier": "bad"}
    if declared == "resource":
        await harness.apply(app("a", labels=labels))
    else:
        await harness.client.patch(
            "v1/ConfigMap", "child", {"metadata": {"labels": labels}}, namespace="default"
        )
    await harness.settle()
    assert controller.runs == ["a"]
    assert failures(harness, "predicate") >= 1
