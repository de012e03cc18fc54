"""Faulty reconciles and invalid resources: what is logged, and that other resources keep running."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kapsa.runtime import Backoff, Context, CustomResource, Operator, Reads, Requeue, Spec, Status
from kapsa.runtime.testing import Harness
from tests.runtime.sample_app import App, Recorder, app

pytestmark = pytest.mark.virtual_time

Printed = pytest.CaptureFixture[str]


def logged_by(capsys: Printed) -> str:
    """Return what was printed, to either stream: the process chooses where logs go."""
    return "".join(capsys.readouterr())


async def start(harness: Harness, controller: Recorder) -> None:
    await harness.install(App)
    await harness.start(Operator(controllers=[controller]))


async def install_without_schema(harness: Harness) -> None:
    """Install the kind with the schema of an older version, which allows any spec."""
    await harness.install(App)
    crd = await harness.client.get("apiextensions.k8s.io/v1/CustomResourceDefinition", "apps.example.com")
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    await harness.client.replace(crd)


async def test_an_invalid_return_value_is_reported_and_other_resources_keep_running(
    harness: Harness, capsys: Printed
) -> None:
    async def return_a_dict(resource: App, ctx: Context[App]) -> Any:
        return {"requeue": True} if resource.name == "bad" else None

    controller = Recorder(return_a_dict)
    await start(harness, controller)
    await harness.apply(app("bad"), app("good"))
    await harness.clock.sleep(1)
    logged = logged_by(capsys)
    assert "Recorder.reconcile returned {'requeue': True}: return None" in logged
    assert "Traceback" not in logged
    assert "good" in controller.runs


async def test_a_resource_that_no_longer_fits_the_model_is_reported_and_others_keep_running(
    harness: Harness,
) -> None:
    await install_without_schema(harness)
    await harness.apply(app("old", replicas="many"), app("good"))
    controller = Recorder()
    await harness.start(Operator(controllers=[controller]))
    await harness.settle()
    assert controller.runs == ["good"]
    event = await harness.assert_event("DoesNotFitModel", name="old")
    assert "App default/old does not fit its model: spec.replicas" in event["note"]


async def test_a_resource_that_fits_again_runs_again(harness: Harness) -> None:
    await install_without_schema(harness)
    await harness.apply(app("old", replicas="many"))
    controller = Recorder()
    await harness.start(Operator(controllers=[controller]))
    await harness.settle()
    await harness.apply(app("old", replicas=2))
    await harness.settle()
    assert controller.runs == ["old"]


async def test_a_run_that_reads_another_resource_that_does_not_fit_is_retried(
    harness: Harness, capsys: Printed
) -> None:
    async def add_up(resource: App, ctx: Context[App]) -> Requeue | None:
        if resource.name == "sum":
            ctx.status.ready = sum(each.spec.replicas for each in ctx.list(App))
        return None

    await install_without_schema(harness)
    await harness.apply(app("sum"), app("old", replicas="many"))
    await harness.start(Operator(controllers=[Recorder(add_up, reads=[Reads(App)])]))
    await harness.clock.sleep(10)
    assert "App default/old does not fit its model: spec.replicas" in logged_by(capsys)
    await harness.apply(app("old", replicas=2))
    await harness.clock.sleep(1100)  # more than the longest back-off: nothing else runs the sum
    assert (await harness.get(App, "sum")).status.ready == 3


async def test_a_failure_is_logged_with_its_traceback_once_and_then_in_one_line(
    harness: Harness, capsys: Printed
) -> None:
    async def divide(resource: App, ctx: Context[App]) -> Requeue | None:
        return Requeue(after=1 // (resource.spec.replicas - 1))

    await start(harness, Recorder(divide))
    await harness.apply(app("bad"))
    await harness.clock.sleep(30)
    logged = logged_by(capsys)
    assert logged.count("Traceback") == 1
    assert "in divide" in logged
    assert "reconciler.py" not in logged
    assert "_runner.py" not in logged
    assert "ZeroDivisionError: integer division or modulo by zero" in logged
    assert "reconcile failed again" in logged


async def await_a_cancelled_task() -> None:
    task = asyncio.create_task(asyncio.sleep(3600))
    asyncio.get_running_loop().call_soon(task.cancel)
    await task


async def test_a_reconcile_that_awaits_a_cancelled_task_fails_and_its_worker_goes_on(
    harness: Harness, capsys: Printed
) -> None:
    async def work(resource: App, ctx: Context[App]) -> Requeue | None:
        ctx.status.ready = resource.spec.replicas
        if resource.name == "bad":
            await await_a_cancelled_task()
        return None

    controller = Recorder(work, max_concurrent_reconciles=1, retry_backoff=Backoff(initial=5, max=300))
    await start(harness, controller)
    await harness.apply(app("bad"))
    await harness.clock.sleep(1)
    await harness.apply(app("good"))
    await harness.clock.sleep(20)
    assert controller.runs == ["bad", "good", "bad", "bad"], "after 0, 5 and 15 seconds"
    assert (await harness.get(App, "bad")).status.ready == 1, "the status set before the failure is written"
    logged = logged_by(capsys)
    assert "RuntimeError: something it awaited was cancelled, but not by the operator" in logged
    assert "in await_a_cancelled_task" in logged
    failed = 'controller_reconciliations_total{controller="app",result="error"} 3.0'
    assert failed in harness.running["operator"].metrics.render().decode()


async def test_a_finalize_that_awaits_a_cancelled_task_is_retried(harness: Harness) -> None:
    class Cleaner(Recorder):
        ends = 0

        async def finalize(self, resource: App, ctx: Context[App]) -> Requeue | None:
            self.ends += 1
            if self.ends == 1:
                await await_a_cancelled_task()
            return None

    controller = Cleaner(max_concurrent_reconciles=1)
    await start(harness, controller)
    await harness.apply(app("a"))
    await harness.settle()
    await harness.client.delete(App, "a", namespace="default")
    await harness.settle()
    assert controller.ends == 2
    assert await harness.get(App, "a") is None


class PickySpec(Spec):
    color: str = ""

    def __post_init__(self) -> None:
        {"red": 1, "": 0}[self.color]


class Picky(CustomResource[PickySpec, Status], group="example.com", version="v1"):
    """A kind whose model raises an unexpected exception."""


class PickyController(Recorder):
    resource = Picky


async def test_a_model_whose_own_code_fails_is_logged_and_other_resources_keep_running(
    harness: Harness, capsys: Printed
) -> None:
    await harness.install(Picky)
    controller = PickyController(max_concurrent_reconciles=1)
    await harness.start(Operator(controllers=[controller]))
    for name, color in (("bad", "blue"), ("good", "red")):
        picky = {
            "apiVersion": "example.com/v1",
            "kind": "Picky",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"color": color},
        }
        await harness.apply(picky)
        await harness.clock.sleep(1)
    assert "KeyError: 'blue'" in logged_by(capsys)
    assert controller.runs == ["good"]


async def test_a_child_of_an_unsupported_type_is_reported_with_its_type(
    harness: Harness, capsys: Printed
) -> None:
    async def nothing(resource: App, ctx: Context[App]) -> Requeue | None:
        await ctx.apply(None)
        return None

    await start(harness, Recorder(nothing))
    await harness.apply(app("bad"))
    await harness.clock.sleep(1)
    assert "child must be a dict, YAML text, a resource or a struct, got NoneType" in logged_by(capsys)
