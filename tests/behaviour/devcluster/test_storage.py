"""The volume that a claim gets, on both engines."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from kapsa.devcluster import DevCluster
from kapsa.runtime import Client
from tests.eventually import eventually

NUMBERS = itertools.count(1)
Object = dict[str, Any]


class Storage:
    """Claims of a namespace of their own, and volumes that go with it."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.cluster_wide: list[tuple[str, str]] = []

    def own(self, name: str) -> str:
        """Return the cluster-wide name of a volume or class of this test."""
        return f"{self.namespace}-{name}"

    async def volume(self, name: str, *, labels: Object | None = None, **spec: Any) -> None:
        metadata = {"name": self.own(name), "labels": labels or {}}
        default = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": self.own("manual"),
            "hostPath": {"path": "/data"},
        }
        volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata}
        await self.client.create({**volume, "spec": {**default, **spec}})
        self.cluster_wide.append(("v1/PersistentVolume", self.own(name)))

    async def claim(self, name: str, size: str = "1Gi", **spec: Any) -> None:
        default = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": self.own("manual"),
            "resources": {"requests": {"storage": size}},
        }
        metadata = {"name": name, "namespace": self.namespace}
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata}
        await self.client.create({**claim, "spec": {**default, **spec}})

    async def storage_class(self, name: str, provisioner: str, mode: str) -> None:
        await self.client.create(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": self.own(name)},
                "provisioner": provisioner,
                "volumeBindingMode": mode,
            }
        )
        self.cluster_wide.append(("storage.k8s.io/v1/StorageClass", self.own(name)))

    async def pod(self, name: str, *claims: str, **spec: Any) -> None:
        volumes = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]
        metadata = {"name": name, "namespace": self.namespace}
        containers = [{"name": "main", "image": "app:1"}]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
        await self.client.create({**pod, "spec": {"containers": containers, "volumes": volumes, **spec}})

    async def bound(self, name: str) -> Object:
        """Return a claim that is bound, as soon as it is."""

        async def read() -> Object:
            return await self.client.get("v1/PersistentVolumeClaim", name, namespace=self.namespace)

        return await eventually(read, lambda one: one["status"]["phase"] == "Bound", f"{name} to be bound")

    async def refusal(self, name: str) -> str:
        """Return the first Event about a claim, which must be pending."""

        async def read() -> list[str]:
            events = (await self.client.list("v1/Event", namespace=self.namespace)).items
            return [e["message"] for e in events if e["involvedObject"]["name"] == name]

        messages = await eventually(read, bool, f"an event about {name}")
        claim = await self.client.get("v1/PersistentVolumeClaim", name, namespace=self.namespace)
        assert claim["status"]["phase"] == "Pending"
        return messages[0]


@pytest_asyncio.fixture
async def storage(cluster: DevCluster) -> AsyncIterator[Storage]:
    async with Client.connect(kubeconfig=cluster.kubeconfig) as client:
        storage = Storage(client, f"storage-{next(NUMBERS)}")
        metadata = {"name": storage.namespace}
        await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        yield storage
        for kind, name in storage.cluster_wide:
            await client.delete(kind, name)


async def test_a_volume_that_is_bound_is_not_given_to_a_claim_that_names_it(storage: Storage) -> None:
    await storage.volume("one")
    await storage.claim("owner", volumeName=storage.own("one"))
    owner = await storage.bound("owner")
    await storage.claim("other", volumeName=storage.own("one"))
    assert await storage.refusal("other") == (
        f'volume "{storage.own("one")}" already bound to a different claim.'
    )
    volume = await storage.client.get("v1/PersistentVolume", storage.own("one"))
    assert volume["spec"]["claimRef"]["uid"] == owner["metadata"]["uid"]
    assert await storage.bound("owner") == owner


async def test_a_volume_must_fit_the_claim_that_names_it(storage: Storage) -> None:
    await storage.volume("one")
    misfits: dict[str, tuple[str, Object]] = {
        "large": ("requested PV is too small", {"size": "9Gi"}),
        "classless": ("storageClassName does not match", {"storageClassName": ""}),
        "raw": ("incompatible volumeMode", {"volumeMode": "Block"}),
        "shared": ("incompatible accessMode", {"accessModes": ["ReadWriteMany"]}),
    }
    for name, (why, spec) in misfits.items():
        await storage.claim(name, volumeName=storage.own("one"), **spec)
        assert await storage.refusal(name) == f'Cannot bind to requested volume "{storage.own("one")}": {why}'


async def test_a_claim_is_bound_to_a_volume_that_its_selector_and_mode_allow(storage: Storage) -> None:
    await storage.storage_class("manual", "kubernetes.io/no-provisioner", "Immediate")
    await storage.volume("block", volumeMode="Block")
    await storage.volume("any")
    await storage.volume("labelled", labels={"tier": "gold"})
    await storage.claim("raw", volumeMode="Block")
    await storage.claim("gold", selector={"matchLabels": {"tier": "gold"}})
    assert (await storage.bound("raw"))["spec"]["volumeName"] == storage.own("block")
    assert (await storage.bound("gold"))["spec"]["volumeName"] == storage.own("labelled")


async def test_a_volume_reserved_by_name_is_bound_to_that_claim_only(storage: Storage) -> None:
    reserved = {"namespace": storage.namespace, "name": "owner"}
    await storage.volume("one", claimRef=reserved)
    await storage.claim("other", volumeName=storage.own("one"))
    await storage.refusal("other")
    await storage.claim("owner")
    owner = await storage.bound("owner")
    assert owner["spec"]["volumeName"] == storage.own("one")
    volume = await storage.client.get("v1/PersistentVolume", storage.own("one"))
    assert volume["spec"]["claimRef"]["uid"] == owner["metadata"]["uid"]


async def test_a_claim_that_waits_for_its_first_consumer_is_bound_when_a_pod_needs_it(
    storage: Storage,
) -> None:
    await storage.storage_class("manual", "kubernetes.io/no-provisioner", "WaitForFirstConsumer")
    standard = await storage.client.get("storage.k8s.io/v1/StorageClass", "standard")
    await storage.storage_class("later", standard["provisioner"], "WaitForFirstConsumer")
    await storage.volume("one")
    await storage.claim("static")
    await storage.claim("dynamic", storageClassName=storage.own("later"))
    for name in ("static", "dynamic"):
        assert await storage.refusal(name) == "waiting for first consumer to be created before binding"
    await storage.pod("user", "static", "dynamic")
    assert (await storage.bound("static"))["spec"]["volumeName"] == storage.own("one")
    await storage.bound("dynamic")

    async def read() -> Object:
        return await storage.client.get("v1/Pod", "user", namespace=storage.namespace)

    await eventually(read, lambda pod: pod["spec"].get("nodeName"), "the pod to have a node")
