"""Owner references: background, foreground, orphan, and owners that never were."""

from __future__ import annotations

from typing import Any

import pytest

from tests.devcluster.embedded.controllers.client import World, workload

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


async def test_dependents_go_with_their_owner_in_the_background(world: World) -> None:
    owner = await world.create("configmaps", "owner")
    child = await world.create("configmaps", "child", metadata=owned_by(owner))
    await world.create("secrets", "grandchild", metadata=owned_by(child))
    await world.settle()
    await world.delete("configmaps", "owner")
    assert world.find("configmaps", "owner") is None
    await world.settle()
    assert world.find("configmaps", "child") is None
    assert world.find("secrets", "grandchild") is None


async def test_an_owner_in_foreground_deletion_waits_for_what_blocks_it(world: World) -> None:
    owner = await world.create("configmaps", "owner")
    child = {**owned_by(owner, block=True), "finalizers": ["example.com/hold"]}
    await world.create("configmaps", "child", metadata=child)
    await world.settle()
    await world.delete("configmaps", "owner", "Foreground")
    await world.settle()
    assert world.get("configmaps", "owner")["metadata"]["finalizers"] == ["foregroundDeletion"]
    held = world.get("configmaps", "child")
    assert "deletionTimestamp" in held["metadata"]
    held["metadata"]["finalizers"] = []
    await world.update("configmaps", held)
    await world.settle()
    assert world.find("configmaps", "child") is None
    assert world.find("configmaps", "owner") is None


async def test_a_dependent_that_does_not_block_does_not_hold_up_a_foreground_deletion(world: World) -> None:
    owner = await world.create("configmaps", "owner")
    child = {**owned_by(owner), "finalizers": ["example.com/hold"]}
    await world.create("configmaps", "child", metadata=child)
    await world.settle()
    await world.delete("configmaps", "owner", "Foreground")
    await world.settle()
    assert world.find("configmaps", "owner") is None
    assert "deletionTimestamp" in world.get("configmaps", "child")["metadata"]


async def test_orphaned_dependents_lose_the_reference_and_stay(world: World) -> None:
    owner = await world.create("configmaps", "owner")
    await world.create("configmaps", "child", metadata=owned_by(owner))
    await world.settle()
    await world.delete("configmaps", "owner", "Orphan")
    await world.settle()
    assert world.find("configmaps", "owner") is None
    assert "ownerReferences" not in world.get("configmaps", "child")["metadata"]


async def test_an_owner_that_never_was_means_deletion(world: World) -> None:
    ghost = {"metadata": {"name": "ghost", "uid": "11111111-2222-3333-4444-555555555555"}}
    await world.create("configmaps", "child", metadata=owned_by(ghost))
    await world.settle()
    assert world.find("configmaps", "child") is None


async def test_an_owner_of_the_same_name_but_another_uid_does_not_count(world: World) -> None:
    owner = await world.create("configmaps", "owner")
    stale = {"metadata": {"name": "owner", "uid": "11111111-2222-3333-4444-555555555555"}}
    await world.create("configmaps", "child", metadata=owned_by(stale))
    await world.create("configmaps", "good", metadata=owned_by(owner))
    await world.settle()
    assert world.find("configmaps", "child") is None
    assert world.find("configmaps", "good") is not None


async def test_an_owner_in_another_namespace_does_not_count(world: World) -> None:
    owner = await world.create("configmaps", "owner")
    await world.create("namespaces", "elsewhere")
    await world.create("configmaps", "child", metadata={"namespace": "elsewhere", **owned_by(owner)})
    await world.settle()
    assert world.find("configmaps", "child", "elsewhere") is None


async def test_a_dependent_with_one_owner_left_stays_and_loses_the_other_reference(world: World) -> None:
    first = await world.create("configmaps", "first")
    second = await world.create("configmaps", "second")
    references = owned_by(first)["ownerReferences"] + owned_by(second)["ownerReferences"]
    await world.create("configmaps", "child", metadata={"ownerReferences": references})
    await world.settle()
    await world.delete("configmaps", "first")
    await world.settle()
    left = world.get("configmaps", "child")["metadata"]["ownerReferences"]
    assert [r["name"] for r in left] == ["second"]


async def test_an_owner_of_an_unknown_kind_is_nobodys_business(world: World) -> None:
    ghost = {"metadata": {"name": "ghost", "uid": "11111111-2222-3333-4444-555555555555"}}
    await world.create("configmaps", "child", metadata=owned_by(ghost, kind="Widget"))
    await world.settle(60)
    assert world.find("configmaps", "child") is not None


async def test_a_deployment_deleted_in_the_foreground_takes_its_pods_along_first(world: World) -> None:
    world.workloads.delay(terminate=10)
    await world.create("deployments", "web", workload(2))
    await world.settle(1)
    await world.delete("deployments", "web", "Foreground")
    await world.settle(5)
    assert world.find("deployments", "web") is not None
    assert len(world.list("pods")) == 2
    await world.settle(10)
    assert world.names("pods") == []
    assert world.names("replicasets") == []
    assert world.find("deployments", "web") is None
