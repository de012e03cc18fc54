"""A CRD is deleted under objects that own others, on both engines."""

import asyncio
from functools import partial
from typing import Any

import pytest

from kapsa.devcluster import DevCluster
from kapsa.devcluster.cluster import EngineName
from kapsa.runtime import AlreadyExists, Client, CustomResource, NotFound, Spec, Status, UnknownKind
from kapsa.runtime import custom_resource_definition as definition_of
from tests.eventually import eventually
from tests.runtime.sample_app import config_map

CRD = "apiextensions.k8s.io/v1/CustomResourceDefinition"


class PlotSpec(Spec):
    pass


class Plot(CustomResource[PlotSpec, Status], group="removal.example.com", version="v1"):
    """A kind that owns a ConfigMap."""


@pytest.mark.timeout(900)
async def test_children_are_collected_after_the_crd_of_their_owners_was_deleted(
    cluster: DevCluster, engine: EngineName
) -> None:
    """The real collector looks for new kinds every 30 s, and collects only below owners it has seen."""
    async with Client.connect(kubeconfig=cluster.kubeconfig) as client:
        for seconds in (0,) if engine == "embedded" else (45, 90, 180):
            await install_and_remove(client, seconds)
            if await collected(client):
                return
            await client.delete("v1/ConfigMap", "child", namespace="default")
    pytest.fail("the child of a resource whose CRD was deleted is still there")


async def collected(client: Client) -> bool:
    try:
        async with asyncio.timeout(60):
            await eventually(partial(exists, client), lambda there: not there, "no child", seconds=90)
    except TimeoutError:
        return False
    return True


async def install_and_remove(client: Client, seconds: float) -> None:
    """Install the kind, create an owner and its child, wait, and delete the kind."""
    crd = definition_of([Plot])
    await eventually(partial(installed, client, crd), bool, "the kind of before to be gone", seconds=120)
    await eventually(partial(create, client), bool, "the kind to be served", seconds=120)
    owner = await client.get(Plot, "one", namespace="default")
    reference = {
        "apiVersion": Plot.api_version,
        "kind": Plot.kind,
        "name": "one",
        "uid": owner.metadata.uid,
    }
    await client.create(config_map("child", ownerReferences=[reference], namespace="default"))
    await asyncio.sleep(seconds)
    await client.delete(CRD, crd["metadata"]["name"])


async def installed(client: Client, crd: dict[str, Any]) -> bool:
    try:
        await client.create(crd)
    except AlreadyExists:
        return False
    return True


async def create(client: Client) -> bool:
    plot = {
        "apiVersion": Plot.api_version,
        "kind": Plot.kind,
        "metadata": {"name": "one", "namespace": "default"},
        "spec": {},
    }
    try:
        await client.create(plot)
    except AlreadyExists:
        return True
    except (NotFound, UnknownKind):
        return False
    return True


async def exists(client: Client) -> bool:
    try:
        await client.get("v1/ConfigMap", "child", namespace="default")
    except NotFound:
        return False
    return True
