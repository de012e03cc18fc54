"""Sweeps: an operator disturbed at every write, call and event ends like an undisturbed one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kapsa.devcluster.faults import FaultPlan
from kapsa.runtime import Context, Operator, Owns, Requeue
from kapsa.runtime.testing import (
    Harness,
    Sample,
    Scenario,
    SweepReport,
    crash_at_every_write,
    disturb_every_call,
    disturb_every_watch,
)
from tests.runtime.sample_app import App, Recorder, app, config_map

pytestmark = [pytest.mark.virtual_time, pytest.mark.timeout(300)]


class Shop(Recorder):
    """A controller with one of each kind of write: children, a delete, a status, a cleanup."""

    owns = (Owns("v1/ConfigMap", deletes=True),)

    async def reconcile(self, resource: App, ctx: Context[App]) -> Requeue | None:
        await ctx.apply(config_map(resource.name, data={"image": resource.spec.image}))
        if resource.spec.replicas == 0:
            await ctx.delete("v1/ConfigMap", f"{resource.name}-extra")
        else:
            await ctx.apply(config_map(f"{resource.name}-extra"))
        ctx.status.ready = resource.spec.replicas
        ctx.condition("Ready", True, reason="Made")
        return None

    async def finalize(self, resource: App, ctx: Context[App]) -> Requeue | None:
        await ctx.apply(config_map(f"{resource.name}-was-here"), owner=False)
        return None


def shop() -> Scenario:
    async def prepare(harness: Harness) -> None:
        await harness.install(App)
        await harness.apply(app("web"))

    async def change(harness: Harness) -> None:
        await harness.apply(app("web", image="httpd", replicas=0))

    async def delete(harness: Harness) -> None:
        await harness.client.delete(App, "web", namespace="default")

    return Scenario(operator=lambda: Operator(controllers=[Shop()]), prepare=prepare, steps=[change, delete])


Record = Callable[[str, object], None]


def accept(report: SweepReport, record_property: Record, least: int) -> None:
    record_property("sweep", f"shop: {report}")
    assert not report.failures, str(report)
    assert report.total >= least


async def test_two_crashes_in_a_row_do_not_change_the_final_state(
    sample: Sample | None, record_property: Record
) -> None:
    report = await crash_at_every_write(shop(), moments=["commit"], pairs=3, sample=sample)
    accept(report, record_property, 30)


async def test_a_fault_at_any_call_does_not_change_the_final_state(
    sample: Sample | None, record_property: Record
) -> None:
    accept(await disturb_every_call(shop(), sample=sample), record_property, 70)


async def test_a_fault_at_any_watch_event_does_not_change_the_final_state(
    sample: Sample | None, record_property: Record
) -> None:
    accept(await disturb_every_watch(shop(), events=6, sample=sample), record_property, 40)


async def test_stale_reads_after_a_restart_delete_and_revert_nothing(
    harness: Harness, faults: FaultPlan
) -> None:
    """A restarted operator that reads an old state from a lagging API server must not overwrite a new one."""
    await harness.install(App)
    await harness.apply(app("web", image="old", replicas=0))
    await harness.start(Operator(controllers=[Shop()]))
    await harness.settle()
    past = harness.cluster.revision
    await harness.apply(app("web", image="new", replicas=2))
    await harness.settle()
    extra = await harness.get("v1/ConfigMap", "web-extra")
    await harness.kill()
    faults.freeze(past, "operator")
    await harness.start(Operator(controllers=[Shop()]))
    await harness.clock.sleep(120)
    still = await harness.get("v1/ConfigMap", "web-extra")
    assert still["metadata"]["uid"] == extra["metadata"]["uid"], "the current object was not deleted"
    assert (await harness.get(App, "web")).status.observed_generation == 2, "never decreasing"
    faults.thaw()
    await harness.settle()
    assert (await harness.get("v1/ConfigMap", "web"))["data"] == {"image": "new"}
    assert (await harness.get(App, "web")).status.ready == 2


async def test_states_that_were_never_observed_do_no_harm(harness: Harness) -> None:
    """The resource and its child are deleted and created again faster than the operator observes."""
    await harness.install(App)
    await harness.start(Operator(controllers=[Shop()]))
    await harness.apply(app("web"))
    await harness.settle()
    for number in range(5):
        await harness.client.delete(App, "web", namespace="default", missing_ok=True)
        await asyncio.sleep(0.002 * number)
        await harness.client.delete("v1/ConfigMap", "web", namespace="default", missing_ok=True)
    await harness.settle()
    await harness.apply(app("web", image="again"))
    await harness.settle()
    parent = await harness.get(App, "web")
    child = await harness.get("v1/ConfigMap", "web")
    assert child["data"] == {"image": "again"}
    assert [each["uid"] for each in child["metadata"]["ownerReferences"]] == [parent.metadata.uid]


async def test_deleted_resources_leave_no_tasks_and_no_memory(harness: Harness) -> None:
    await harness.install(App)
    run = await harness.start(Operator(controllers=[Shop()]))
    await harness.settle()
    before = len(asyncio.all_tasks())
    for _ in range(3):
        for number in range(30):
            await harness.apply(app(f"a{number}"))
        await harness.settle()
        for number in range(30):
            await harness.client.delete(App, f"a{number}", namespace="default")
        await harness.settle()
    (reconciler,) = run.reconcilers
    assert len(asyncio.all_tasks()) <= before
    leftovers: list[Any] = [reconciler.queue.delayed, list(reconciler.queue.in_flight), len(reconciler.queue)]
    assert leftovers == [{}, [], 0]
    assert all(informer.store.ahead == 0 for informer in reconciler.informers)
    assert len(reconciler.services.applier) <= 30, "the objects that the cleanup leaves on purpose"
