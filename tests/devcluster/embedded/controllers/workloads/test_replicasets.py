"""ReplicaSets and ReplicationControllers: as many pods as asked for, and no more."""

from __future__ import annotations

import pytest

from tests.devcluster.embedded.controllers.client import World, condition, template, workload

pytestmark = pytest.mark.virtual_time


async def test_a_deleted_pod_is_replaced(world: World) -> None:
    await world.create("replicasets", "web", workload(2))
    await world.settle()
    before = world.names("pods")
    await world.delete("pods", before[0])
    await world.settle()
    after = world.names("pods")
    assert len(after) == 2
    assert before[0] not in after
    assert before[1] in after


async def test_scaling_down_takes_pods_that_are_not_ready_first(world: World) -> None:
    await world.create("replicasets", "web", workload(2))
    await world.settle()
    good = set(world.names("pods"))
    world.workloads.fail_image("app:1")
    await world.change("replicasets", "web", replicas=4)
    await world.settle()
    await world.change("replicasets", "web", replicas=2)
    await world.settle()
    assert set(world.names("pods")) == good


async def test_a_pod_whose_labels_stop_matching_is_released_and_replaced(world: World) -> None:
    await world.create("replicasets", "web", workload(1))
    await world.settle()
    (pod,) = world.list("pods")
    pod["metadata"]["labels"] = {"app": "quarantine"}
    await world.update("pods", pod)
    await world.settle()
    assert "ownerReferences" not in world.get("pods", pod["metadata"]["name"])["metadata"]
    assert len(world.list("pods", labels="app=web")) == 1


async def test_a_bare_pod_that_matches_is_adopted(world: World) -> None:
    await world.create("pods", "lone", template()["spec"], metadata={"labels": {"app": "web"}})
    await world.settle()
    owner = await world.create("replicasets", "web", workload(2))
    await world.settle()
    assert len(world.list("pods")) == 2
    reference = world.get("pods", "lone")["metadata"]["ownerReferences"][0]
    assert reference["uid"] == owner["metadata"]["uid"]


async def test_a_refused_pod_shows_in_a_condition_and_an_event(world: World) -> None:
    spec = workload(1)
    spec["template"]["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    spec["template"]["spec"]["volumes"] = [{"name": "data", "emptyDir": {}}]
    await world.create("replicasets", "web", spec)
    await world.settle()
    assert condition(world.get("replicasets", "web"), "ReplicaFailure") == {}
    assert world.get("replicasets", "web")["status"]["readyReplicas"] == 1


async def test_a_replication_controller_keeps_its_pods(world: World) -> None:
    await world.create("replicationcontrollers", "old", {"replicas": 2, "template": template()})
    await world.settle()
    status = world.get("replicationcontrollers", "old")["status"]
    assert (status["replicas"], status["readyReplicas"]) == (2, 2)
    assert world.get("replicationcontrollers", "old")["spec"]["selector"] == {"app": "web"}
