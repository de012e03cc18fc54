"""Deployments: rollouts, history, scaling, conditions."""

from __future__ import annotations

import pytest

from tests.devcluster.embedded.controllers.client import ObjectClient, condition, template, workload

pytestmark = pytest.mark.virtual_time

REVISION = "deployment.kubernetes.io/revision"


def sizes(client: ObjectClient) -> dict[str, int]:
    """Return the replicas by image."""
    return {
        rs["spec"]["template"]["spec"]["containers"][0]["image"]: rs["spec"]["replicas"]
        for rs in client.list("replicasets")
    }


async def test_a_deployment_gets_a_replica_set_and_its_pods_become_ready(client: ObjectClient) -> None:
    await client.create("deployments", "web", workload(3))
    await client.settle()
    deployment = client.get("deployments", "web")
    (replica_set,) = client.list("replicasets")
    assert deployment["status"] == {
        "observedGeneration": 1,
        "replicas": 3,
        "updatedReplicas": 3,
        "readyReplicas": 3,
        "availableReplicas": 3,
        "terminatingReplicas": 0,
        "conditions": deployment["status"]["conditions"],
    }
    name = replica_set["metadata"]["name"]
    available, progressing = condition(deployment, "Available"), condition(deployment, "Progressing")
    assert (available["status"], available["reason"]) == ("True", "MinimumReplicasAvailable")
    assert available["message"] == "Deployment has minimum availability."
    assert (progressing["status"], progressing["reason"]) == ("True", "NewReplicaSetAvailable")
    assert progressing["message"] == f'ReplicaSet "{name}" has successfully progressed.'
    assert deployment["metadata"]["annotations"][REVISION] == "1"
    assert replica_set["metadata"]["annotations"] == {
        "deployment.kubernetes.io/desired-replicas": "3",
        "deployment.kubernetes.io/max-replicas": "4",
        REVISION: "1",
    }
    digest = replica_set["metadata"]["labels"]["pod-template-hash"]
    assert name == f"web-{digest}"
    assert replica_set["spec"]["selector"]["matchLabels"] == {"app": "web", "pod-template-hash": digest}
    assert len(client.list("pods", labels=f"pod-template-hash={digest}")) == 3
    assert client.events("web") == [("ScalingReplicaSet", f"Scaled up replica set {name} from 0 to 3")]
    assert [reason for reason, _ in client.events(name)] == ["SuccessfulCreate"] * 3


async def test_a_rolling_update_stays_within_its_surge_and_availability_limits(client: ObjectClient) -> None:
    client.workloads.delay(start=5, ready=5)
    await client.create("deployments", "web", workload(4))
    await client.settle(60)
    await client.change("deployments", "web", template=template("app:2"))
    seen = []
    for _ in range(120):
        await client.settle(1)
        pods = [p for p in client.list("pods") if "deletionTimestamp" not in p["metadata"]]
        ready = sum(condition(p, "Ready").get("status") == "True" for p in pods)
        seen.append((len(pods), ready))
    assert max(total for total, _ in seen) == 5
    assert min(ready for _, ready in seen) == 3
    assert sizes(client) == {"app:1": 0, "app:2": 4}
    assert seen[-1] == (4, 4)


async def test_recreate_starts_new_pods_only_when_the_old_ones_are_gone(client: ObjectClient) -> None:
    client.workloads.delay(terminate=10)
    await client.create("deployments", "web", workload(2, strategy={"type": "Recreate"}))
    await client.settle()
    await client.change("deployments", "web", template=template("app:2"))
    await client.settle(5)
    assert {p["spec"]["containers"][0]["image"] for p in client.list("pods")} == {"app:1"}
    await client.settle(10)
    assert {p["spec"]["containers"][0]["image"] for p in client.list("pods")} == {"app:2"}


async def test_rolling_back_raises_the_old_replica_sets_revision_and_keeps_its_history(
    client: ObjectClient,
) -> None:
    await client.create("deployments", "web", workload(1))
    await client.settle()
    await client.change("deployments", "web", template=template("app:2"))
    await client.settle()
    await client.change("deployments", "web", template=template("app:1"))
    await client.settle()
    annotations = {
        rs["spec"]["template"]["spec"]["containers"][0]["image"]: rs["metadata"]["annotations"]
        for rs in client.list("replicasets")
    }
    assert annotations["app:1"][REVISION] == "3"
    assert annotations["app:1"]["deployment.kubernetes.io/revision-history"] == "1"
    assert annotations["app:2"][REVISION] == "2"
    assert client.get("deployments", "web")["metadata"]["annotations"][REVISION] == "3"


async def test_old_replica_sets_beyond_the_history_limit_are_removed(client: ObjectClient) -> None:
    await client.create("deployments", "web", workload(1, revisionHistoryLimit=2))
    for number in range(2, 7):
        await client.settle()
        await client.change("deployments", "web", template=template(f"app:{number}"))
    await client.settle()
    assert sorted(sizes(client)) == ["app:4", "app:5", "app:6"]


async def test_a_rollout_without_progress_exceeds_its_deadline_and_recovers(client: ObjectClient) -> None:
    await client.create("deployments", "web", workload(2, progressDeadlineSeconds=60))
    await client.settle()
    client.workloads.fail_image("app:2")
    await client.change("deployments", "web", template=template("app:2"))
    await client.settle(50)
    deployment = client.get("deployments", "web")
    assert condition(deployment, "Progressing")["reason"] == "ReplicaSetUpdated"
    assert condition(deployment, "Available")["status"] == "True"
    await client.settle(30)
    progressing = condition(client.get("deployments", "web"), "Progressing")
    assert (progressing["status"], progressing["reason"]) == ("False", "ProgressDeadlineExceeded")
    assert progressing["message"].endswith("has timed out progressing.")
    client.workloads.heal()
    await client.settle(60)
    progressing = condition(client.get("deployments", "web"), "Progressing")
    assert (progressing["status"], progressing["reason"]) == ("True", "NewReplicaSetAvailable")


async def test_a_paused_deployment_scales_but_does_not_roll_out(client: ObjectClient) -> None:
    await client.create("deployments", "web", workload(1))
    await client.settle()
    await client.change("deployments", "web", paused=True, replicas=3, template=template("app:2"))
    await client.settle()
    assert sizes(client) == {"app:1": 3}
    progressing = condition(client.get("deployments", "web"), "Progressing")
    assert (progressing["status"], progressing["reason"]) == ("Unknown", "DeploymentPaused")
    await client.change("deployments", "web", paused=False)
    await client.settle()
    assert sizes(client) == {"app:1": 0, "app:2": 3}


async def test_scaling_in_the_middle_of_a_rollout_keeps_the_proportions(client: ObjectClient) -> None:
    await client.create("deployments", "web", workload(10))
    await client.settle()
    client.workloads.fail_image("app:2")
    await client.change("deployments", "web", template=template("app:2"))
    await client.settle()
    before = sizes(client)
    assert before == {"app:1": 8, "app:2": 5}
    await client.change("deployments", "web", replicas=20)
    await client.settle()
    after = sizes(client)
    assert sum(after.values()) == 25
    assert after["app:1"] > after["app:2"] > before["app:2"]


async def test_a_matching_orphan_replica_set_is_adopted(client: ObjectClient) -> None:
    await client.create("deployments", "web", workload(2))
    await client.settle()
    (old,) = client.list("replicasets")
    await client.delete("deployments", "web", "Orphan")
    await client.settle()
    assert "ownerReferences" not in client.get("replicasets", old["metadata"]["name"])["metadata"]
    deployment = await client.create("deployments", "web", workload(2))
    await client.settle()
    (adopted,) = client.list("replicasets")
    assert adopted["metadata"]["uid"] == old["metadata"]["uid"]
    assert adopted["metadata"]["ownerReferences"][0]["uid"] == deployment["metadata"]["uid"]


async def test_pods_count_as_available_only_after_min_ready_seconds(client: ObjectClient) -> None:
    await client.create("deployments", "web", workload(1, minReadySeconds=30))
    await client.settle(10)
    status = client.get("deployments", "web")["status"]
    assert (status["readyReplicas"], status.get("availableReplicas")) == (1, None)
    await client.settle(25)
    assert client.get("deployments", "web")["status"]["availableReplicas"] == 1
