"""The trial on a real cluster: a proxy cuts a leader off, another one works and dies, the first comes back.

It still sees the resources, and gets the lease back before its watch of the children. Twenty pairs of replicas run at a time, each in a namespace
of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest

from kapsa.devcluster import DevCluster
from kapsa.devcluster.faults import Cut, Drop, FaultPlan, FaultRule
from kapsa.devcluster.real.proxy import FaultProxy
from kapsa.runtime import (
    Client,
    Context,
    HttpTransport,
    LeaderElection,
    NotFound,
    Operator,
    StaticAccess,
    custom_resource_definitions,
)
from tests.runtime.sample_app import App, Recorder, app

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

TRIALS = 20
RESOURCES = 20
LEASE = "coordination.k8s.io/v1/Lease"


async def one_child(resource: App, ctx: Context[App]) -> None:
    if not ctx.children("v1/ConfigMap"):
        name = f"{resource.name}-"
        await ctx.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": name}})


def replica(namespace: str) -> tuple[Operator, Recorder]:
    controller = Recorder(one_child, owns=("v1/ConfigMap",), max_concurrent_reconciles=5)
    election = LeaderElection(
        name="lock", namespace=namespace, lease_duration=6, renew_deadline=4, retry_period=1
    )
    return Operator(controllers=[controller], leader_election=election), controller


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait until a condition holds; fail with what is missing after two minutes."""
    for _ in range(600):
        if await condition():
            return
        await asyncio.sleep(0.2)
    raise AssertionError(f"{what} did not come within two minutes")


async def trial(cluster: DevCluster, admin: Client, namespace: str) -> int:
    """Play one failover. Return the number of children at its end."""

    async def children() -> int:
        items = (await admin.list("v1/ConfigMap", namespace=namespace)).items
        return sum("generateName" in item["metadata"] for item in items)

    async def leads(name: str) -> bool:
        try:
            lease = await admin.get(LEASE, "lock", namespace=namespace)
        except NotFound:
            return False
        return str(lease["spec"]["holderIdentity"]) == name

    async def all_ran_again() -> bool:
        return len(set(controller.runs)) == RESOURCES

    async def all_there() -> bool:
        return await children() >= RESOURCES

    plan = FaultPlan()
    operator, controller = replica(namespace)
    async with contextlib.AsyncExitStack() as stack:
        proxy = FaultProxy(cluster.url, cluster.kubeconfig_data, plan)
        await proxy.start()
        stack.push_async_callback(proxy.close)
        through_proxy = await stack.enter_async_context(Client(HttpTransport(StaticAccess(proxy.url))))
        direct = await stack.enter_async_context(Client.connect(kubeconfig=cluster.kubeconfig))
        first = await operator.start(through_proxy, identity="first", namespaces=[namespace], serve=False)
        stack.push_async_callback(first.kill)
        await until(lambda: leads("first"), "the first replica")
        await first.wait_until_synced()
        other, _ = replica(namespace)
        second = await other.start(direct, identity="second", namespaces=[namespace], serve=False)
        stack.push_async_callback(second.kill)
        lease = plan.add(FaultRule(action=Drop(), resource="leases", times=0))
        watches = [
            plan.add(FaultRule(action=Drop(), resource="configmaps", verb=verb, times=0))
            for verb in ("watch", "list")
        ]
        plan.order(Cut(), resource="configmaps")
        await until(lambda: leads("second"), "the second replica")
        for number in range(RESOURCES):
            await admin.create(app(f"app-{number}", namespace=namespace))
        await until(all_there, "a child for each resource")
        await second.kill()
        plan.remove(lease)
        await until(lambda: leads("first"), "the first replica again")
        await asyncio.sleep(2)
        for rule in watches:
            plan.remove(rule)
        await until(all_ran_again, "a run of each resource")
        await asyncio.sleep(1)
        return await children()


async def test_twenty_of_twenty_failovers_make_no_child_twice(
    real_cluster: DevCluster, record_property: Callable[[str, object], None]
) -> None:
    async with Client.connect(kubeconfig=real_cluster.kubeconfig) as admin:
        for definition in custom_resource_definitions([App]):
            await admin.create(definition)
        await asyncio.sleep(2)
        namespaces = [f"failover-{number}" for number in range(TRIALS)]
        for namespace in namespaces:
            await admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        counts = await asyncio.gather(*(trial(real_cluster, admin, each) for each in namespaces))
    good = sum(count == RESOURCES for count in counts)
    record_property("sweep", f"failover on the real engine: {good} of {TRIALS} trials made no child twice")
    assert good == TRIALS, counts
