"""The guarantees of the testing module."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kapsa.devcluster.faults import FaultPlan
from kapsa.runtime import Context, MissingRights, Operator, Owns, Requeue
from kapsa.runtime.testing import Harness, NotSettledError, Scenario, crash_at_every_write
from tests.runtime.sample_app import App, Recorder, app, config_map

pytestmark = pytest.mark.virtual_time


class Shop(Recorder):
    """A controller with each kind of write: two children, a status, an event and a clean-up."""

    owns = (Owns("v1/ConfigMap", deletes=True), "v1/Secret")

    async def reconcile(self, resource: App, ctx: Context[App]) -> Requeue | None:
        await ctx.apply(config_map(resource.name, data={"image": resource.spec.image}))
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": resource.name},
            "stringData": {"a": "b"},
        }
        await ctx.apply(secret)
        if resource.spec.replicas == 0:
            await ctx.delete("v1/ConfigMap", f"{resource.name}-extra")
        else:
            await ctx.apply(config_map(f"{resource.name}-extra"))
        ctx.status.ready = resource.spec.replicas
        ctx.condition("Ready", True, reason="Made")
        ctx.event("Normal", "Made", "all there")
        return None

    async def finalize(self, resource: App, ctx: Context[App]) -> Requeue | None:
        await ctx.apply(config_map(f"{resource.name}-was-here", namespace="default"), owner=False)
        return None


class Forgetful(Recorder):
    """A controller that keeps its progress in memory: after a crash its child is never created."""

    owns = ("v1/ConfigMap",)

    async def reconcile(self, resource: App, ctx: Context[App]) -> Requeue | None:
        if resource.status.ready == 0:
            ctx.status.ready = 1
            self.unfinished = True
            return Requeue(after=1)
        if getattr(self, "unfinished", False):
            await ctx.apply(config_map(resource.name))
        return None


def scenario(controller: type[Recorder]) -> Scenario:
    async def prepare(harness: Harness) -> None:
        await harness.install(App)
        await harness.apply(app("web"))

    async def change(harness: Harness) -> None:
        await harness.apply(app("web", image="httpd", replicas=0))

    async def delete(harness: Harness) -> None:
        await harness.client.delete(App, "web", namespace="default")

    return Scenario(
        operator=lambda: Operator(controllers=[controller()]),
        prepare=prepare,
        steps=[change, delete] if controller is Shop else [],
    )


async def test_an_operator_that_crashes_at_any_write_reaches_the_same_state(
    record_property: Callable[[str, object], None],
) -> None:
    report = await crash_at_every_write(scenario(Shop))
    assert report.failures == {}
    writes = report.points // 3
    assert report.points == report.total == 3 * writes
    assert writes >= 9
    assert (
        str(report) == f"{report.points} crash points over {writes} writes: all end like the undisturbed run"
    )
    record_property("crash_points", report.points)


async def test_an_operator_that_relies_on_its_memory_is_detected() -> None:
    report = await crash_at_every_write(scenario(Forgetful))
    assert any(
        "configmaps default/web was created 0 times instead of 1" in why for why in report.failures.values()
    )


async def test_settle_passes_hours_in_no_time_and_waits_for_delayed_keys(harness: Harness) -> None:
    async def eventually(resource: App, ctx: Context[App]) -> Requeue | None:
        if resource.status.ready < 5:
            ctx.status.ready = resource.status.ready + 1
            return Requeue(after=500)
        return None

    await harness.install(App)
    await harness.start(Operator(controllers=[Recorder(eventually)]))
    await harness.apply(app("a"))
    await harness.settle()
    assert (await harness.get(App, "a")).status.ready == 5
    assert harness.clock.monotonic() > 2000


async def test_settle_ignores_requeues_that_change_nothing(harness: Harness) -> None:
    async def poll(resource: App, ctx: Context[App]) -> Requeue:
        return Requeue(after=30)

    await harness.install(App)
    await harness.start(Operator(controllers=[Recorder(poll)]))
    await harness.apply(app("a"))
    await harness.settle()
    assert harness.clock.monotonic() < 700


async def test_settle_reports_what_never_stops(harness: Harness) -> None:
    async def restless(resource: App, ctx: Context[App]) -> Requeue:
        ctx.status.ready = resource.status.ready + 1
        return Requeue(after=0)

    await harness.install(App)
    await harness.start(Operator(controllers=[Recorder(restless)]))
    await harness.apply(app("a"))
    with pytest.raises(NotSettledError, match="operator: patch apps/status default/a -> 200"):
        await harness.settle(max_writes=200)


async def test_a_missing_condition_or_event_is_reported_with_the_present_ones(harness: Harness) -> None:
    async def work(resource: App, ctx: Context[App]) -> None:
        ctx.condition("Ready", False, reason="Broken", message="no luck")
        ctx.event("Warning", "Broken", "no luck")

    await harness.install(App)
    await harness.start(Operator(controllers=[Recorder(work)]))
    await harness.apply(app("a"))
    await harness.settle()
    with pytest.raises(AssertionError, match=r"expected Ready=True, has Ready=False \(Broken: no luck\)"):
        await harness.assert_condition(App, "a", "Ready")
    with pytest.raises(AssertionError, match=r"no event Made with ''; recorded: .*Broken: no luck"):
        await harness.assert_event("Made")


async def test_the_rights_of_an_operator_of_one_namespace_are_limited_to_it(harness: Harness) -> None:
    async def elsewhere(resource: App, ctx: Context[App]) -> None:
        await ctx.apply(config_map(resource.spec.image, namespace=resource.spec.image), owner=False)

    await harness.install(App)
    for name in ("shop", "bank"):
        await harness.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    operator = Operator(controllers=[Recorder(elsewhere, owns=["v1/ConfigMap"])], namespaces=["shop"])
    await harness.start(operator)
    await harness.apply(app("a", namespace="shop", image="shop"))
    await harness.settle()
    assert "create configmaps in shop" not in harness.verify_rights(operator)
    await harness.apply(app("a", namespace="shop", image="bank"))
    await harness.settle()
    with pytest.raises(MissingRights, match="create configmaps bank in bank"):
        harness.verify_rights(operator)


async def test_calls_are_recorded_by_client(harness: Harness, faults: FaultPlan) -> None:
    async def work(resource: App, ctx: Context[App]) -> None:
        await ctx.apply(config_map(resource.name))

    await harness.install(App)
    await harness.start(Operator(controllers=[Recorder(work, owns=["v1/ConfigMap"])]))
    await harness.apply(app("a"))
    await harness.settle()
    assert [str(call) for call in harness.writes("operator")] == [
        "operator: patch configmaps default/a -> 201",
        "operator: patch apps/status default/a -> 200",
    ]
    assert {record.client for record in faults.records} >= {"operator", "test"}


async def test_a_crash_sweep_of_a_run_without_writes_fails() -> None:
    class Idle(Recorder):
        async def reconcile(self, resource: App, ctx: Context[App]) -> Requeue | None:
            raise RuntimeError("never gets to a write")

    with pytest.raises(AssertionError, match="the undisturbed run made no write"):
        await crash_at_every_write(scenario(Idle))


async def test_runs_that_failed_are_reported_although_the_cluster_settled(harness: Harness) -> None:
    async def fail(resource: App, ctx: Context[App]) -> None:
        raise RuntimeError("always")

    await harness.install(App)
    await harness.start(Operator(controllers=[Recorder(fail)]))
    await harness.settle()
    harness.assert_no_failures()
    await harness.apply(app("a"))
    await harness.settle()
    with pytest.raises(AssertionError, match=r"runs failed: app: \d+ × error"):
        harness.assert_no_failures()
