"""ReplicaSets and ReplicationControllers: the specified number of pods."""

from __future__ import annotations

import pytest

from tests.devcluster.embedded.controllers.client import ObjectClient, condition, template, workload

pytestmark = pytest.mark.virtual_time


async def test_a_deleted_pod_is_replaced(client: ObjectClient) -> None:
    await client.create("replicasets", "web", workload(2))
    await client.settle()
    before = client.names("pods")
    await client.delete("pods", before[0])
    await client.settle()
    after = client.names("pods")
    assert len(after) == 2
    assert before[0] not in after
    assert before[1] in after


async def test_scaling_down_deletes_unready_pods_first(client: ObjectClient) -> None:
    await client.create("replicasets", "web", workload(2))
    await client.settle()
    good = set(client.names("pods"))
    client.workloads.fail_image("app:1")
    await client.change("replicasets", "web", replicas=4)
    await client.settle()
    await client.change("replicasets", "web", replicas=2)
    await client.settle()
    assert set(client.names("pods")) == good


async def test_a_pod_whose_labels_stop_matching_is_released_and_replaced(client: ObjectClient) -> None:
    await client.create("replicasets", "web", workload(1))
    await client.settle()
    (pod,) = client.list("pods")
    pod["metadata"]["labels"] = {"app": "quarantine"}
    await client.update("pods", pod)
    await client.settle()
    assert "ownerReferences" not in client.get("pods", pod["metadata"]["name"])["metadata"]
    assert len(client.list("pods", labels="app=web")) == 1


async def test_a_bare_pod_that_matches_is_adopted(client: ObjectClient) -> None:
    await client.create("pods", "lone", template()["spec"], metadata={"labels": {"app": "web"}})
    await client.settle()
    owner = await client.create("replicasets", "web", workload(2))
    await client.settle()
    assert len(client.list("pods")) == 2
    reference = client.get("pods", "lone")["metadata"]["ownerReferences"][0]
    assert reference["uid"] == owner["metadata"]["uid"]


async def test_a_rejected_pod_is_reported_in_a_condition_and_an_event(client: ObjectClient) -> None:
    spec = workload(1)
    spec["template"]["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    spec["template"]["spec"]["volumes"] = [{"name": "data", "emptyDir": {}}]
    await client.create("replicasets", "web", spec)
    await client.settle()
    assert condition(client.get("replicasets", "web"), "ReplicaFailure") == {}
    assert client.get("replicasets", "web")["status"]["readyReplicas"] == 1


async def test_a_replication_controller_creates_its_pods(client: ObjectClient) -> None:
    await client.create("replicationcontrollers", "old", {"replicas": 2, "template": template()})
    await client.settle()
    status = client.get("replicationcontrollers", "old")["status"]
    assert (status["replicas"], status["readyReplicas"]) == (2, 2)
    assert client.get("replicationcontrollers", "old")["spec"]["selector"] == {"app": "web"}
