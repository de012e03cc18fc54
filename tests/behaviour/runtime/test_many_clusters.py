"""Trouble in one of an operator's clusters leaves every resource of every cluster with its one child.

The children have generated names: an operator that forgot what it did would create a second one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from kapsa.devcluster import DevCluster, VirtualClock
from kapsa.devcluster.faults import Crash, Cut, Drop, FaultPlan, FaultRule
from kapsa.runtime import Client, Context, KubeconfigDirectory, MemberCluster, Operator, StaticClusters
from kapsa.runtime.testing import Harness, Sample
from kapsa.runtime.testing._sweep_report import run_points
from tests.eventually import eventually
from tests.runtime.sample_app import App, Recorder, app, config_map

RESOURCES = 2
REQUESTS = 12
"""Requests in the cluster that is disturbed: more than a run makes until both children exist.

The last ones renew the watches, after five to ten minutes each.
"""
FAULT_SECONDS = 3600
"""The time within which the fault must have come and gone."""


class Disturbance(msgspec.Struct, frozen=True):
    """A fault at one request to one cluster."""

    request: int
    fault: Literal["crash", "partition"]
    seconds: float = 0.0
    when: Literal["before", "after"] = "before"

    def __str__(self) -> str:
        length = f" of {self.seconds:g} s" if self.seconds else ""
        return f"{self.fault}{length} {self.when} request {self.request}"


POINTS = {
    "crashes before a request": [Disturbance(each, "crash") for each in range(1, REQUESTS + 1)],
    "crashes after a request": [Disturbance(each, "crash", when="after") for each in range(1, REQUESTS + 1)],
    "short partitions": [Disturbance(each, "partition", 5.0) for each in range(1, REQUESTS + 1)],
    "long partitions": [Disturbance(each, "partition", 400.0) for each in range(1, REQUESTS + 1)],
}
"""A short partition is shorter than a lease, a long one longer than a controller acts on an old cache."""


async def one_child(resource: App, ctx: Context[App]) -> None:
    if not ctx.children("v1/ConfigMap"):
        await ctx.create(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": f"{resource.name}-"}}
        )


def operator_of(clusters: dict[str, Harness]) -> Operator:
    def member(harness: Harness) -> MemberCluster:
        return MemberCluster(lambda clock: harness.connect("operator", clock=clock))

    return Operator(
        controllers=[Recorder(one_child, owns=("v1/ConfigMap",))],
        clusters=StaticClusters({name: member(harness) for name, harness in clusters.items()}),
        leader_election="lock",
    )


async def difference_after(disturbance: Disturbance) -> str:
    """Return how the children in both clusters differ from one for each resource; empty if they do not."""
    clock, faults = VirtualClock(), FaultPlan()
    async with contextlib.AsyncExitStack() as stack:

        async def start(seed: int, plan: FaultPlan | None = None) -> Harness:
            cluster = DevCluster(clock=clock, http=False, faults=plan, seed=seed)
            harness = Harness(await stack.enter_async_context(cluster), clock=clock)
            stack.push_async_callback(harness.close)
            return harness

        clusters = {"eu": await start(1, faults), "us": await start(2)}
        home = await start(3)
        for harness in clusters.values():
            await harness.install(App)
        await home.start(operator_of(clusters))
        task = asyncio.create_task(disturb(disturbance, faults, home, clusters))
        await clock.sleep(3)
        for harness in clusters.values():
            await harness.apply(*(app(f"app-{number}") for number in range(RESOURCES)))
        try:
            async with asyncio.timeout(FAULT_SECONDS):
                await task
        except TimeoutError:
            return "the fault has not fired, or has not ended"
        await clock.sleep(300)
        for name, harness in clusters.items():
            made = sorted(
                each["metadata"]["generateName"]
                for each in (await harness.client.list("v1/ConfigMap", namespace="default")).items
                if "generateName" in each["metadata"]
            )
            if made != [f"app-{number}-" for number in range(RESOURCES)]:
                return f"children in {name}: {made}"
    return ""


async def disturb(
    disturbance: Disturbance, faults: FaultPlan, home: Harness, clusters: dict[str, Harness]
) -> None:
    """Disturb one cluster at the request, and mend it later."""
    if disturbance.fault == "crash":
        faults.add(
            FaultRule(action=Crash(), client="operator", nth=disturbance.request, when=disturbance.when)
        )
        await faults.crash_event("operator").wait()
        await home.kill()
        await home.clock.sleep(1)
        faults.revive("operator")
        await home.start(operator_of(clusters))
        return
    rule = faults.add(FaultRule(action=Drop(), client="operator", nth=disturbance.request, times=0))
    while not rule.fired:
        await home.clock.sleep(0.5)
    faults.order(Cut(), client="operator")
    await home.clock.sleep(disturbance.seconds)
    faults.remove(rule)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.virtual_time
@pytest.mark.parametrize("kind", POINTS)
async def test_no_crash_and_no_partition_at_a_request_to_one_cluster_makes_a_child_twice_or_never(
    kind: str, sample: Sample | None, record_property: Callable[[str, object], None]
) -> None:
    report = await run_points(
        POINTS[kind], difference_after, kind=f"{kind} of one of two clusters", sample=sample
    )
    record_property("sweep", str(report))
    assert not report.failures, str(report)


# -- in real time, on both engines ---------------------------------------------------------------------------------


async def apply_by_name(resource: App, ctx: Context[App]) -> None:
    await ctx.apply(config_map(resource.name, data={"cluster": ctx.cluster}))


@pytest.fixture
async def namespace(cluster: DevCluster) -> AsyncIterator[str]:
    """A namespace of the cluster under test, which has the CRD."""
    harness = Harness(cluster)
    await harness.install(App)
    name = "many-clusters"
    await harness.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    await harness.close()


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_clusters_of_a_directory_join_fail_and_leave_while_another_one_works(
    cluster: DevCluster, namespace: str, tmp_path: Path
) -> None:
    operator = Operator(
        controllers=[Recorder(apply_by_name, owns=("v1/ConfigMap",))],
        clusters=KubeconfigDirectory(tmp_path, every=0.2),
        leader_election="many-clusters",
        check_rights=False,
    )
    (tmp_path / "first.kubeconfig").write_bytes(Path(str(cluster.kubeconfig)).read_bytes())
    async with contextlib.AsyncExitStack() as stack:
        home = await stack.enter_async_context(Client.connect(kubeconfig=cluster.kubeconfig))
        other = DevCluster()
        await stack.enter_async_context(other)
        second = await stack.enter_async_context(Client.connect(kubeconfig=other.kubeconfig))
        for manifest in operator.definitions():
            await second.apply(manifest, force=True)
        run = await stack.enter_async_context(operator.running(home, serve=False))

        await expect_child(home, namespace, "one", "first")
        (tmp_path / "second.kubeconfig").write_bytes(Path(str(other.kubeconfig)).read_bytes())
        await expect_child(second, "default", "one", "second")

        await other.stop()
        await expect_child(home, namespace, "two", "first")
        assert run.health.report(run.health.ready)[0]

        (tmp_path / "second.kubeconfig").unlink()
        await eventually(lambda: connected(run), lambda names: names == ["first"], "one cluster")
        await expect_child(home, namespace, "three", "first")


async def connected(run: Any) -> list[str]:
    return sorted(run.clusters)


async def expect_child(client: Client, namespace: str, name: str, cluster: str) -> None:
    """Apply a resource and wait for its child."""
    await client.apply(app(name, namespace=namespace), force=True, field_manager="person")

    async def read() -> list[Any]:
        children = (await client.list("v1/ConfigMap", namespace=namespace)).items
        return [each["data"] for each in children if each["metadata"]["name"] == name]

    await eventually(read, lambda data: data == [{"cluster": cluster}], f"a child of {name} in {cluster}")
