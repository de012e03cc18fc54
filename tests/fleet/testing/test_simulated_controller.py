"""The sample operator without a fleet: installed objects, and the controller that stands in for its pods."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from kapsa.devcluster import DevCluster
from kapsa.fleet.testing.sample_chart import (
    BEHAVIOUR_LABEL,
    CHART,
    GADGET,
    ControllerBehaviour,
    gadget,
    gadget_crd,
)
from kapsa.fleet.testing.simulated_controller import LEASE, SimulatedController, simulate_pods
from kapsa.runtime import Client
from tests.eventually import eventually


@pytest_asyncio.fixture
async def client() -> AsyncIterator[Client]:
    async with DevCluster() as cluster, Client.connect(kubeconfig=cluster.kubeconfig) as client:
        simulate_pods(cluster.workloads)
        await client.create(gadget_crd())
        for number in range(20):
            await client.create(gadget(f"g-{number:02}", "default"))
        yield client


async def deploy(client: Client, behaviour: ControllerBehaviour, *, replicas: int = 1) -> None:
    labels = {"app.kubernetes.io/name": CHART, BEHAVIOUR_LABEL: behaviour.value}
    container = {"name": "controller", "image": f"registry.example.com/{CHART}:1.0.0"}
    spec: dict[str, Any] = {
        "replicas": replicas,
        "selector": {"matchLabels": {"app.kubernetes.io/name": CHART}},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
    }
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": CHART, "namespace": "default"},
        "spec": spec,
    }
    await client.apply(body, force=True)


async def statuses(client: Client) -> list[str]:
    listed = (await client.list(GADGET)).items
    return [
        condition["status"]
        for each in listed
        for condition in (each.get("status") or {}).get("conditions", ())
        if condition["type"] == "Ready"
    ]


async def test_a_ready_pod_holds_the_lease_and_reports_on_each_resource(client: Client) -> None:
    async with SimulatedController(client, every=0.05).running():
        await deploy(client, ControllerBehaviour.HEALTHY)
        await eventually(lambda: statuses(client), lambda each: each == ["True"] * 20, "20 ready Gadgets")
        lease = await client.get("coordination.k8s.io/v1/Lease", LEASE, namespace="default")
        assert lease["spec"]["holderIdentity"].startswith(f"{CHART}-")
        await client.scale("apps/v1/Deployment", CHART, 0, namespace="default")

        async def holder() -> str:
            lease = await client.get("coordination.k8s.io/v1/Lease", LEASE, namespace="default")
            return str(lease["spec"].get("holderIdentity", ""))

        await eventually(holder, lambda name: name == "", "a released Lease")


async def test_a_bad_version_breaks_a_tenth_of_its_resources(client: Client) -> None:
    async with SimulatedController(client, every=0.05).running():
        await deploy(client, ControllerBehaviour.BREAKS_SOME)
        await eventually(
            lambda: statuses(client), lambda each: each.count("False") == 2, "two Gadgets that are not ready"
        )


async def test_a_version_that_crashes_reports_on_nothing(client: Client) -> None:
    controller = SimulatedController(client)
    await deploy(client, ControllerBehaviour.CRASHES)

    async def reason() -> str:
        for pod in (await client.list("v1/Pod")).items:
            for status in (pod.get("status") or {}).get("containerStatuses") or ():
                return str((status["state"].get("waiting") or {}).get("reason", ""))
        return ""

    await eventually(reason, lambda text: text == "CrashLoopBackOff", "CrashLoopBackOff")
    await controller.run_once()
    assert await statuses(client) == []
