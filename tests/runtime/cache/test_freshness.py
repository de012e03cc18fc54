"""A controller stops acting on a cache that a broken watch has left behind."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from kapsa.devcluster.faults import Cut, Drop, FaultPlan, FaultRule
from kapsa.runtime import Context, Operator, Watch
from kapsa.runtime.testing import Harness
from tests.runtime.sample_app import App, Recorder, app

pytestmark = pytest.mark.virtual_time


async def break_children(harness: Harness, faults: FaultPlan) -> None:
    """Break the watch of ConfigMaps alone; the resources themselves are still delivered."""
    faults.add(FaultRule(action=Drop(), resource="configmaps", client="operator", times=0))
    faults.order(Cut(), resource="configmaps", client="operator")


async def test_a_controller_waits_while_a_watch_is_staler_than_its_limit(
    harness: Harness, faults: FaultPlan
) -> None:
    await harness.install(App)
    controller = Recorder(owns=("v1/ConfigMap",), max_staleness=120.0)
    running = await harness.start(Operator(controllers=[controller]))
    await harness.settle()
    await break_children(harness, faults)
    await harness.clock.sleep(60)
    await harness.apply(app("soon"))
    await harness.clock.sleep(10)
    assert controller.runs == ["soon"], "a minute is within the limit"
    await harness.clock.sleep(120)
    with capture_logs() as logs:
        await harness.apply(app("late"))
        await harness.clock.sleep(60)
    assert controller.runs == ["soon"]
    (line,) = [each for each in logs if each["event"] == "cache is too old to act on, the controller waits"]
    assert (line["log_level"], line["controller"], line["max_staleness"]) == ("error", "app", 120.0)
    assert [each.partition(":")[0] for each in line["watches"]] == ["v1/ConfigMap"]
    ready, report = running.health.report(running.health.ready)
    assert not ready
    assert "controller app: stopped, its cache is too old to act on: v1/ConfigMap" in report
    assert 'controller_stale_watches{controller="app"} 1.0' in running.metrics.render().decode()
    faults.clear()
    with capture_logs() as logs:
        await harness.clock.sleep(60)
    fresh = [each for each in logs if each["event"] == "watches are fresh again, the controller goes on"]
    assert [each["controller"] for each in fresh] == ["app"]
    assert controller.runs == ["soon", "late"]
    assert running.health.report(running.health.ready)[0]


async def test_a_watch_that_a_run_adds_counts_from_the_next_run(harness: Harness, faults: FaultPlan) -> None:
    async def watch(resource: App, ctx: Context[App]) -> None:
        await ctx.watch("v1/ConfigMap")

    await harness.install(App)
    unlimited = Recorder(name="unlimited", owns=("v1/ConfigMap",), max_staleness=None)
    limited = Recorder(watch, name="limited", max_staleness=120.0)
    await harness.start(Operator(controllers=[unlimited, limited]))
    await harness.settle()
    await break_children(harness, faults)
    await harness.clock.sleep(180)
    await harness.apply(app("first"))
    await harness.clock.sleep(5)
    await harness.apply(app("second"))
    await harness.clock.sleep(5)
    assert limited.runs == ["first"]
    assert unlimited.runs == ["first", "second"]


async def test_a_controller_without_a_limit_goes_on(harness: Harness, faults: FaultPlan) -> None:
    await harness.install(App)
    controller = Recorder(owns=("v1/ConfigMap",), max_staleness=None)
    await harness.start(Operator(controllers=[controller]))
    await harness.settle()
    await break_children(harness, faults)
    await harness.clock.sleep(3600)
    await harness.apply(app("late"))
    await harness.clock.sleep(10)
    assert controller.runs == ["late"]


async def test_a_quiet_watch_is_fresh(harness: Harness) -> None:
    await harness.install(App)
    controller = Recorder(owns=("v1/ConfigMap",), max_staleness=90.0)
    await harness.start(Operator(controllers=[controller]))
    await harness.settle()
    for hour in range(3):
        await harness.clock.sleep(3600)
        await harness.apply(app(f"hour-{hour}"))
        await harness.clock.sleep(5)
    assert controller.runs == ["hour-0", "hour-1", "hour-2"]


async def test_a_kind_that_the_cluster_does_not_serve_is_not_stale(harness: Harness) -> None:
    await harness.install(App)
    optional = Watch("example.org/v1/Missing", map=lambda stored: [], optional=True)
    controller = Recorder(watches=(optional,), max_staleness=120.0)
    await harness.start(Operator(controllers=[controller]))
    await harness.settle()
    await harness.clock.sleep(3600)
    await harness.apply(app("late"))
    await harness.clock.sleep(10)
    assert controller.runs == ["late"]


def test_a_limit_that_is_not_positive_is_rejected() -> None:
    with pytest.raises(ValueError, match="max_staleness must be positive or None, got 0"):
        Recorder(max_staleness=0)
