"""The operator as a whole: start, shutdown, and missing kinds and rights."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from kapsa.devcluster import FaultPlan
from kapsa.devcluster.faults import Answer, Drop, FaultRule
from kapsa.runtime import (
    Audit,
    Client,
    Context,
    CustomResource,
    EveryReplica,
    Operator,
    Owns,
    Spec,
    Status,
    grants,
)
from kapsa.runtime.testing import Harness
from tests.runtime.sample_app import App, Recorder, app, config_map

pytestmark = pytest.mark.virtual_time


class LateSpec(Spec):
    size: int = 1


class Late(CustomResource[LateSpec, Status], group="example.com", version="v1"):
    """A kind whose CRD is installed later."""


class LateController(Recorder):
    name = "late"
    resource = Late


def late(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Late",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {},
    }


async def test_a_crd_installed_after_the_operator_degrades_only_its_controller(harness: Harness) -> None:
    await harness.install(App)
    present, missing = Recorder(), LateController()
    run = await harness.start(Operator(controllers=[present, missing]))
    await harness.apply(app("a"))
    await harness.clock.sleep(60)
    assert present.runs == ["a"]
    ready, report = run.health.report(run.health.ready)
    assert ready, "the others do their work"
    assert (
        "[~] controller late: waits for example.com/v1/Late: the cluster does not serve example.com/v1/Late"
        in report
    )
    assert "[+] controller app: working" in report
    await harness.install(Late)
    await harness.apply(late("b"))
    await harness.clock.sleep(35)
    assert missing.runs == ["b"]
    assert "[~]" not in run.health.report(run.health.ready)[1]


async def test_a_watch_without_a_first_list_is_reported_after_two_minutes(
    harness: Harness, faults: FaultPlan
) -> None:
    await harness.install(App)
    forbidden = Answer(code=403, reason="Forbidden", message="configmaps is forbidden: no list for you")
    faults.add(FaultRule(action=forbidden, verb="watch", resource="configmaps", client="operator", times=0))
    faults.add(FaultRule(action=forbidden, verb="list", resource="configmaps", client="operator", times=0))
    controller = Recorder(owns=["v1/ConfigMap"])
    with capture_logs() as logs:
        run = await harness.start(Operator(controllers=[controller]))
        await harness.clock.sleep(119)
        assert not [line for line in logs if line["event"].startswith("watch hangs")]
        await harness.clock.sleep(2)
    (said,) = [line for line in logs if line["event"].startswith("watch hangs")]
    assert (said["controller"], said["watch"], said["seconds"]) == ("app", "v1/ConfigMap", 120.0)
    assert "no list for you" in said["why"]
    ready, report = run.health.report(run.health.ready)
    assert not ready
    assert "[-] controller app: waits for v1/ConfigMap" in report
    await harness.apply(app("a"))
    faults.clear()
    await harness.clock.sleep(31)
    assert controller.runs == ["a"]


async def test_readiness_shows_the_last_progress_of_each_watch(harness: Harness) -> None:
    await harness.install(App)
    run = await harness.start(Operator(controllers=[Recorder(owns=["v1/ConfigMap"])]))
    await harness.clock.sleep(20)
    _, report = run.health.report(run.health.ready)
    assert "[+] watch example.com/v1/App: watching, 0 objects, last progress 20 s ago" in report
    assert "[+] watch v1/ConfigMap: watching" in report


async def test_sigterm_lets_running_work_finish_and_accepts_no_more(harness: Harness) -> None:
    finished: list[str] = []

    async def slowly(resource: App, ctx: Context[App]) -> None:
        await asyncio.sleep(20)
        await ctx.apply(config_map(resource.name))
        ctx.status.ready = 1
        finished.append(resource.name)

    await harness.install(App)
    controller = Recorder(slowly, owns=["v1/ConfigMap"])
    await harness.start(Operator(controllers=[controller], leader_election="lock"))
    await harness.apply(app("running"))
    await harness.clock.sleep(3)
    await harness.apply(app("waiting"))
    started = harness.clock.monotonic()
    await harness.stop()
    assert finished == ["running"], "the other one is left to the next leader"
    assert harness.clock.monotonic() - started == pytest.approx(17, abs=1)
    assert (await harness.get(App, "running")).status.ready == 1
    lease = await harness.get("coordination.k8s.io/v1/Lease", "lock")
    assert lease["spec"]["holderIdentity"] == "", "released, after the last write"


async def test_work_that_takes_longer_than_30_seconds_is_cancelled_at_shutdown(harness: Harness) -> None:
    async def hang(resource: App, ctx: Context[App]) -> None:
        await asyncio.sleep(1000)

    await harness.install(App)
    await harness.start(Operator(controllers=[Recorder(hang, reconcile_timeout=None)]))
    await harness.apply(app("a"))
    await harness.clock.sleep(3)
    started = harness.clock.monotonic()
    await harness.stop()
    assert harness.clock.monotonic() - started == pytest.approx(30, abs=1)


async def test_a_stopped_operator_leaves_no_task_behind(harness: Harness) -> None:
    await harness.install(App)
    before = asyncio.all_tasks()
    for _ in range(3):
        operator = Operator(controllers=[Recorder(owns=["v1/ConfigMap"])], leader_election="lock")
        await harness.start(operator)
        await harness.apply(app("a"))
        await harness.clock.sleep(5)
        await harness.stop()
    assert {task.get_name() for task in asyncio.all_tasks() - before} == set()


async def test_the_calls_match_the_declared_rights(harness: Harness) -> None:
    async def everything(resource: App, ctx: Context[App]) -> None:
        await ctx.apply(config_map(resource.name))
        await ctx.delete("v1/ConfigMap", f"{resource.name}-old")
        ctx.status.ready = 1
        ctx.event("Normal", "Done", "all of it")

    await harness.install(App)
    await harness.client.create(config_map("a-old"), namespace="default")
    operator = Operator(
        controllers=[Recorder(everything, owns=[Owns("v1/ConfigMap", deletes=True)])], leader_election="lock"
    )
    await harness.start(operator)
    await harness.apply(app("a"))
    await harness.settle()
    audit = Audit()
    for recorded in harness.calls:
        audit(recorded.call, recorded.status, 0)
    surplus = audit.verify(grants(operator.rights(), namespace="default"))
    assert surplus == ["patch events.events.k8s.io"], "that is for an event that repeats, and none did"


async def test_an_api_server_that_is_down_for_an_hour_is_waited_for(
    harness: Harness, faults: FaultPlan
) -> None:
    await harness.install(App)
    await harness.apply(app("a"))
    faults.add(FaultRule(action=Drop(), client="operator", times=0))
    controller = Recorder()
    run = await harness.start(Operator(controllers=[controller]))
    await harness.clock.sleep(3600)
    assert controller.runs == []
    assert not run.health.report(run.health.ready)[0]
    faults.clear()
    await harness.clock.sleep(31)
    assert controller.runs == ["a"]


async def test_a_companion_of_every_replica_runs_with_the_operator_and_writes_without_leading(
    harness: Harness,
) -> None:
    calls: list[str] = []

    @contextlib.asynccontextmanager
    async def companion(client: Client) -> AsyncIterator[None]:
        calls.append("begin")
        await client.create(config_map(f"made-{len(calls)}"), namespace="default")
        yield
        calls.append("end")

    await harness.install(App)
    operator = Operator(
        controllers=[Recorder()], companions=[EveryReplica(companion)], leader_election="lock"
    )
    await harness.start(operator, name="one")
    await harness.start(operator, name="two")
    assert await harness.get("v1/ConfigMap", "made-2") is not None
    await harness.stop("one")
    await harness.kill("two")
    assert calls == ["begin", "begin", "end", "end"]
