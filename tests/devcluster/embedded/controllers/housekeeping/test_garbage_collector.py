"""Owner references: background, foreground and orphan deletion, and owners that never existed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.devcluster.embedded.controllers.client import ObjectClient, workload

pytestmark = pytest.mark.virtual_time


def owned_by(owner: dict[str, Any], *, kind: str = "ConfigMap", block: bool = False) -> dict[str, Any]:
    reference = {
        "apiVersion": "v1",
        "kind": kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": block,
    }
    return {"ownerReferences": [reference]}


async def test_background_deletion_deletes_dependents_after_their_owner(client: ObjectClient) -> None:
    owner = await client.create("configmaps", "owner")
    child = await client.create("configmaps", "child", metadata=owned_by(owner))
    await client.create("secrets", "grandchild", metadata=owned_by(child))
    await client.settle()
    await client.delete("configmaps", "owner")
    assert client.find("configmaps", "owner") is None
    await client.settle()
    assert client.find("configmaps", "child") is None
    assert client.find("secrets", "grandchild") is None


async def test_an_owner_in_foreground_deletion_waits_for_blocking_dependents(client: ObjectClient) -> None:
    owner = await client.create("configmaps", "owner")
    child = {**owned_by(owner, block=True), "finalizers": ["example.com/hold"]}
    await client.create("configmaps", "child", metadata=child)
    await client.settle()
    await client.delete("configmaps", "owner", "Foreground")
    await client.settle()
    assert client.get("configmaps", "owner")["metadata"]["finalizers"] == ["foregroundDeletion"]
    held = client.get("configmaps", "child")
    assert "deletionTimestamp" in held["metadata"]
    held["metadata"]["finalizers"] = []
    await client.update("configmaps", held)
    await client.settle()
    assert client.find("configmaps", "child") is None
    assert client.find("configmaps", "owner") is None


async def test_a_foreground_deletion_does_not_wait_for_dependents_that_do_not_block(
    client: ObjectClient,
) -> None:
    owner = await client.create("configmaps", "owner")
    child = {**owned_by(owner), "finalizers": ["example.com/hold"]}
    await client.create("configmaps", "child", metadata=child)
    await client.settle()
    await client.delete("configmaps", "owner", "Foreground")
    await client.settle()
    assert client.find("configmaps", "owner") is None
    assert "deletionTimestamp" in client.get("configmaps", "child")["metadata"]


async def test_orphaned_dependents_lose_the_reference_and_stay(client: ObjectClient) -> None:
    owner = await client.create("configmaps", "owner")
    await client.create("configmaps", "child", metadata=owned_by(owner))
    await client.settle()
    await client.delete("configmaps", "owner", "Orphan")
    await client.settle()
    assert client.find("configmaps", "owner") is None
    assert "ownerReferences" not in client.get("configmaps", "child")["metadata"]


async def test_a_dependent_of_an_owner_that_never_existed_is_deleted(client: ObjectClient) -> None:
    ghost = {"metadata": {"name": "ghost", "uid": "11111111-2222-3333-4444-555555555555"}}
    await client.create("configmaps", "child", metadata=owned_by(ghost))
    await client.settle()
    assert client.find("configmaps", "child") is None


async def test_an_owner_of_the_same_name_but_another_uid_does_not_count(client: ObjectClient) -> None:
    owner = await client.create("configmaps", "owner")
    stale = {"metadata": {"name": "owner", "uid": "11111111-2222-3333-4444-555555555555"}}
    await client.create("configmaps", "child", metadata=owned_by(stale))
    await client.create("configmaps", "good", metadata=owned_by(owner))
    await client.settle()
    assert client.find("configmaps", "child") is None
    assert client.find("configmaps", "good") is not None


async def test_an_owner_in_another_namespace_does_not_count(client: ObjectClient) -> None:
    owner = await client.create("configmaps", "owner")
    await client.create("namespaces", "elsewhere")
    await client.create("configmaps", "child", metadata={"namespace": "elsewhere", **owned_by(owner)})
    await client.settle()
    assert client.find("configmaps", "child", "elsewhere") is None


async def test_a_dependent_with_one_owner_left_stays_and_loses_the_other_reference(
    client: ObjectClient,
) -> None:
    first = await client.create("configmaps", "first")
    second = await client.create("configmaps", "second")
    references = owned_by(first)["ownerReferences"] + owned_by(second)["ownerReferences"]
    await client.create("configmaps", "child", metadata={"ownerReferences": references})
    await client.settle()
    await client.delete("configmaps", "first")
    await client.settle()
    left = client.get("configmaps", "child")["metadata"]["ownerReferences"]
    assert [r["name"] for r in left] == ["second"]


async def test_a_dependent_of_an_unknown_kind_is_never_collected(client: ObjectClient) -> None:
    ghost = {"metadata": {"name": "ghost", "uid": "11111111-2222-3333-4444-555555555555"}}
    await client.create("configmaps", "child", metadata=owned_by(ghost, kind="Widget"))
    await client.settle(60)
    assert client.find("configmaps", "child") is not None


async def test_a_deployment_deleted_in_the_foreground_deletes_its_pods_first(
    client: ObjectClient,
) -> None:
    client.workloads.delay(terminate=10)
    await client.create("deployments", "web", workload(2))
    await client.settle(1)
    await client.delete("deployments", "web", "Foreground")
    await client.settle(5)
    assert client.find("deployments", "web") is not None
    assert len(client.list("pods")) == 2
    await client.settle(10)
    assert client.names("pods") == []
    assert client.names("replicasets") == []
    assert client.find("deployments", "web") is None
