"""Pods that get no node, and the reason, on both engines."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import pytest_asyncio

from kapsa.devcluster import DevCluster
from kapsa.runtime import Client
from kapsa.schemas.quantities import parse
from tests.eventually import eventually

NUMBERS = itertools.count(1)
Object = dict[str, Any]
HOSTNAME = "kubernetes.io/hostname"
NOT_HELPFUL = "Preemption is not helpful for scheduling"
NO_VICTIMS = "No preemption victims found for incoming pod"


def unschedulable(why: str, preemption: str) -> str:
    return (
        f"0/1 nodes are available: 1 {why}. no new claims to deallocate, "
        f"preemption: 0/1 nodes are available: 1 {preemption}."
    )


def rejected(why: str) -> str:
    return f"0/1 nodes are available: {why}. not found"


def near(labels: Object) -> list[Object]:
    return [{"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": labels}}]


def affinity(kind: str, **labels: str) -> Object:
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": near(labels)}}


class Pods:
    """The pods of a namespace of their own on a cluster with one node."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace

    async def create(self, kind: str, name: str, spec: Object, labels: Object | None = None) -> None:
        metadata = {"name": name, "namespace": self.namespace, "labels": labels or {}}
        await self.client.create({"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec})

    async def pod(self, name: str, labels: Object | None = None, **spec: Any) -> None:
        default = {"containers": [{"name": "main", "image": "app:1"}]}
        await self.create("Pod", name, {**default, **spec}, labels)

    async def user_of(self, claim: str, name: str) -> None:
        await self.pod(name, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": claim}}])

    async def sized(self, name: str, cpu: Decimal, **spec: Any) -> None:
        await self.pod(name, containers=[container("main", cpu)], **spec)

    async def claim(self, name: str, mode: str = "ReadWriteOnce", **spec: Any) -> None:
        amounts = {"requests": {"storage": "1Gi"}}
        await self.create(
            "PersistentVolumeClaim", name, {"accessModes": [mode], "resources": amounts, **spec}
        )

    async def node_of(self, name: str) -> str:
        async def read() -> Object:
            return await self.client.get("v1/Pod", name, namespace=self.namespace)

        pod = await eventually(
            read, lambda p: p["spec"].get("nodeName"), f"{name} to have a node", seconds=20
        )
        return str(pod["spec"]["nodeName"])

    async def refusal(self, name: str) -> str:
        """Return the message of the condition PodScheduled, once a pod has been tried."""

        async def read() -> Object:
            pod = await self.client.get("v1/Pod", name, namespace=self.namespace)
            assert not pod["spec"].get("nodeName"), f"{name} was bound to a node"
            conditions = (pod.get("status") or {}).get("conditions") or ()
            return next((c for c in conditions if c["type"] == "PodScheduled"), {})

        condition = await eventually(read, bool, f"{name} to be refused", seconds=20)
        assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
        return str(condition["message"])

    async def cpu(self) -> Decimal:
        """Return the CPUs of the node."""
        (node,) = (await self.client.list("v1/Node")).items
        return parse(node["status"]["allocatable"]["cpu"])


def container(name: str, cpu: Decimal, **more: Any) -> Object:
    amounts = {"requests": {"cpu": str(int(cpu))}}
    return {"name": name, "image": "app:1", "resources": amounts, **more}


@pytest_asyncio.fixture
async def pods(cluster: DevCluster) -> AsyncIterator[Pods]:
    async with Client.connect(kubeconfig=cluster.kubeconfig) as client:
        pods = Pods(client, f"scheduling-{next(NUMBERS)}")
        await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": pods.namespace}})
        yield pods


async def test_a_pod_waits_for_a_claim_that_does_not_exist_or_is_not_bound(pods: Pods) -> None:
    await pods.user_of("data", "one")
    missing = 'persistentvolumeclaim "data" not found'
    assert await pods.refusal("one") == rejected(missing)
    await pods.claim("data")
    await pods.node_of("one")
    await pods.claim("never", storageClassName="none-such")
    await pods.user_of("never", "two")
    unbound = "pod has unbound immediate PersistentVolumeClaims"
    assert await pods.refusal("two") == rejected(unbound)


async def test_a_claim_of_one_pod_is_not_given_to_a_second(pods: Pods) -> None:
    await pods.claim("data", "ReadWriteOncePod")
    await pods.user_of("data", "one")
    await pods.node_of("one")
    await pods.user_of("data", "two")
    assert await pods.refusal("two") == unschedulable(
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by "
        "another pod",
        NO_VICTIMS,
    )
    await pods.client.delete("v1/Pod", "one", namespace=pods.namespace, grace_period_seconds=0)
    await pods.node_of("two")


async def test_a_host_port_belongs_to_one_pod_of_a_node(pods: Pods) -> None:
    def ports(**port: Any) -> list[Object]:
        return [{"name": "main", "image": "app:1", "ports": [{"containerPort": 80, **port}]}]

    await pods.pod("one", containers=ports(hostPort=8080))
    await pods.node_of("one")
    for name, port in (("same", {}), ("narrower", {"hostIP": "127.0.0.1"})):
        await pods.pod(name, containers=ports(hostPort=8080, **port))
        taken = "node(s) didn't have free ports for the requested pod ports"
        assert await pods.refusal(name) == unschedulable(taken, NO_VICTIMS)
    await pods.pod("udp", containers=ports(hostPort=8080, protocol="UDP"))
    await pods.node_of("udp")


async def test_pods_that_repel_each_other_do_not_share_a_node(pods: Pods) -> None:
    await pods.pod("one", {"app": "web"}, affinity=affinity("podAntiAffinity", app="web"))
    await pods.node_of("one")
    await pods.pod("two", {"app": "web"}, affinity=affinity("podAntiAffinity", app="web"))
    rules = "node(s) didn't match pod anti-affinity rules"
    assert await pods.refusal("two") == unschedulable(rules, NO_VICTIMS)
    await pods.pod("repelled", {"app": "web"})
    existing = "node(s) didn't satisfy existing pods anti-affinity rules"
    assert await pods.refusal("repelled") == unschedulable(existing, NO_VICTIMS)
    await pods.pod("other", {"app": "api"})
    await pods.node_of("other")


async def test_a_pod_waits_for_one_that_it_must_be_near_to(pods: Pods) -> None:
    await pods.pod("follower", affinity=affinity("podAffinity", app="cache"))
    rules = "node(s) didn't match pod affinity rules"
    assert await pods.refusal("follower") == unschedulable(rules, NOT_HELPFUL)
    await pods.pod("cache", {"app": "cache"}, affinity=affinity("podAffinity", app="cache"))
    assert await pods.node_of("cache") == await pods.node_of("follower")


async def test_a_spread_constraint_keeps_a_pod_from_an_uneven_node(pods: Pods) -> None:
    def spread(key: str) -> Object:
        selector = {"matchLabels": {"app": "web"}}
        rule = {"maxSkew": 1, "minDomains": 2, "topologyKey": key, "labelSelector": selector}
        return {"topologySpreadConstraints": [{**rule, "whenUnsatisfiable": "DoNotSchedule"}]}

    await pods.pod("one", {"app": "web"}, **spread(HOSTNAME))
    await pods.node_of("one")
    await pods.pod("two", {"app": "web"}, **spread(HOSTNAME))
    rules = "node(s) didn't match pod topology spread constraints"
    assert await pods.refusal("two") == unschedulable(rules, NO_VICTIMS)
    await pods.pod("nowhere", {"app": "web"}, **spread("example.com/rack"))
    assert await pods.refusal("nowhere") == unschedulable(f"{rules} (missing required label)", NOT_HELPFUL)


async def test_sidecars_and_the_amounts_of_a_whole_pod_count(pods: Pods) -> None:
    cpu = await pods.cpu()
    step = container("init", cpu)
    sidecar = container("helper", cpu * Decimal("0.6"), restartPolicy="Always")
    await pods.sized("sidecar", cpu * Decimal("0.6"), initContainers=[sidecar])
    assert await pods.refusal("sidecar") == unschedulable("Insufficient cpu", NOT_HELPFUL)
    await pods.pod("whole", resources={"requests": {"cpu": str(int(cpu * 2))}})
    assert await pods.refusal("whole") == unschedulable("Insufficient cpu", NOT_HELPFUL)
    await pods.sized("steps", cpu * Decimal("0.6"), initContainers=[step])
    await pods.node_of("steps")
    await pods.sized("late", cpu * Decimal("0.6"))
    assert await pods.refusal("late") == unschedulable("Insufficient cpu", NO_VICTIMS)
