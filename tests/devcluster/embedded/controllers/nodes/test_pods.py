"""Pods on nodes: start, crash, failed image pull, end, eviction."""

from __future__ import annotations

from typing import Any

import pytest

from tests.devcluster.embedded.controllers.client import ObjectClient, condition, template, workload

pytestmark = pytest.mark.virtual_time


def state(pod: dict[str, Any]) -> dict[str, Any]:
    status: dict[str, Any] = pod["status"]["containerStatuses"][0]
    return status


async def test_a_pod_is_scheduled_starts_and_becomes_ready_with_its_delays(client: ObjectClient) -> None:
    client.workloads.delay(schedule=2, start=3, ready=4)
    await client.create("pods", "lone", template()["spec"])
    await client.settle(1)
    pod = client.get("pods", "lone")
    assert (pod["status"]["phase"], pod["spec"].get("nodeName")) == ("Pending", None)
    await client.settle(2)
    pod = client.get("pods", "lone")
    assert pod["spec"]["nodeName"] == "node-1"
    assert state(pod)["state"]["waiting"]["reason"] == "ContainerCreating"
    await client.settle(3)
    pod = client.get("pods", "lone")
    assert pod["status"]["phase"] == "Running"
    assert condition(pod, "Ready")["status"] == "False"
    assert condition(pod, "Ready")["message"] == "containers with unready status: [main]"
    await client.settle(4)
    pod = client.get("pods", "lone")
    assert condition(pod, "Ready")["status"] == "True"
    assert pod["status"]["podIP"].startswith("10.244.")
    assert pod["metadata"]["generation"] == 1
    reasons = [reason for reason, _ in client.events("lone")]
    assert reasons == ["Scheduled", "Pulled", "Created", "Started"]


async def test_a_crashing_container_backs_off_longer_each_time(client: ObjectClient) -> None:
    client.workloads.crash("lone", exit_code=2, message="no database")
    await client.create("pods", "lone", template()["spec"])
    counts = {}
    for seconds in (1, 12, 32, 72, 152, 312, 612, 912):
        await client.settle(seconds - max(counts, default=0))
        counts[seconds] = state(client.get("pods", "lone"))["restartCount"]
    assert list(counts.values()) == [1, 2, 3, 4, 5, 6, 7, 8]
    pod = client.get("pods", "lone")
    waiting = state(pod)["state"]["waiting"]
    assert waiting["reason"] == "CrashLoopBackOff"
    uid = pod["metadata"]["uid"]
    assert waiting["message"] == f"back-off 5m0s restarting failed container=main pod=lone_default({uid})"
    ended = state(pod)["lastState"]["terminated"]
    assert (ended["exitCode"], ended["reason"], ended["message"]) == (2, "Error", "no database")
    assert pod["status"]["phase"] == "Running"
    assert condition(pod, "Ready")["status"] == "False"


async def test_a_container_keeps_running_after_its_last_crash(client: ObjectClient) -> None:
    client.workloads.crash("lone", times=2)
    await client.create("pods", "lone", template()["spec"])
    await client.settle(60)
    pod = client.get("pods", "lone")
    assert state(pod)["restartCount"] == 2
    assert condition(pod, "Ready")["status"] == "True"


async def test_a_pod_that_is_never_restarted_fails(client: ObjectClient) -> None:
    client.workloads.crash("lone", exit_code=9, after=5)
    await client.create("pods", "lone", template(restartPolicy="Never")["spec"])
    await client.settle(2)
    assert client.get("pods", "lone")["status"]["phase"] == "Running"
    await client.settle(10)
    pod = client.get("pods", "lone")
    assert pod["status"]["phase"] == "Failed"
    assert state(pod)["state"]["terminated"]["exitCode"] == 9


async def test_a_broken_image_backs_off_and_recovers(client: ObjectClient) -> None:
    client.workloads.fail_image("broken:*")
    await client.create("pods", "lone", template("broken:1")["spec"])
    await client.settle(1)
    waiting = state(client.get("pods", "lone"))["state"]["waiting"]
    assert waiting["reason"] in ("ErrImagePull", "ImagePullBackOff")
    await client.settle(20)
    pod = client.get("pods", "lone")
    assert state(pod)["state"]["waiting"]["reason"] == "ImagePullBackOff"
    assert pod["status"]["phase"] == "Pending"
    assert ("Failed", "Error: ErrImagePull") in client.events("lone")
    client.workloads.heal()
    await client.settle(20)
    assert condition(client.get("pods", "lone"), "Ready")["status"] == "True"


async def test_a_deleted_pod_stays_until_its_containers_end(client: ObjectClient) -> None:
    client.workloads.delay(terminate=10)
    await client.create("pods", "lone", template()["spec"])
    await client.settle(1)
    await client.delete("pods", "lone")
    await client.settle(5)
    assert client.get("pods", "lone")["metadata"]["deletionGracePeriodSeconds"] == 30
    await client.settle(10)
    assert client.find("pods", "lone") is None


async def test_an_unschedulable_pod_reports_the_reason_until_a_node_fits(client: ObjectClient) -> None:
    await client.create("pods", "lone", template(nodeSelector={"disk": "ssd"})["spec"])
    await client.settle(1)
    scheduled = condition(client.get("pods", "lone"), "PodScheduled")
    assert (scheduled["status"], scheduled["reason"]) == ("False", "Unschedulable")
    assert scheduled["message"].startswith(
        "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
    )
    node = client.get("nodes", "node-1")
    node["metadata"]["labels"]["disk"] = "ssd"
    await client.update("nodes", node)
    await client.settle(1)
    assert condition(client.get("pods", "lone"), "Ready")["status"] == "True"


async def test_a_pod_too_large_for_its_node_waits_for_free_resources(client: ObjectClient) -> None:
    big = template()["spec"]
    big["containers"][0]["resources"] = {"requests": {"cpu": "40"}}
    await client.create("pods", "first", big)
    await client.settle(1)
    await client.create("pods", "second", big)
    await client.settle(1)
    assert "Insufficient cpu" in condition(client.get("pods", "second"), "PodScheduled")["message"]
    await client.delete("pods", "first")
    await client.settle(1)
    assert condition(client.get("pods", "second"), "Ready")["status"] == "True"


async def test_pods_of_a_lost_node_are_evicted_after_their_toleration(client: ObjectClient) -> None:
    await client.create("nodes", "node-2")
    await client.create("deployments", "web", workload(2))
    await client.settle(1)
    victims = [p for p in client.list("pods") if p["spec"]["nodeName"] == "node-2"]
    assert len(victims) == 1
    client.workloads.remove_node("node-2")
    await client.settle(40)
    assert condition(client.get("nodes", "node-2"), "Ready")["status"] == "True"
    await client.settle(20)
    ready = condition(client.get("nodes", "node-2"), "Ready")
    assert (ready["status"], ready["reason"]) == ("Unknown", "NodeStatusUnknown")
    pod = client.get("pods", victims[0]["metadata"]["name"])
    assert condition(pod, "Ready")["status"] == "False"
    assert client.get("deployments", "web")["status"]["availableReplicas"] == 1
    await client.settle(310)
    pod = client.get("pods", victims[0]["metadata"]["name"])
    assert "deletionTimestamp" in pod["metadata"]
    assert condition(pod, "DisruptionTarget")["reason"] == "DeletionByTaintManager"
    alive = [p for p in client.list("pods") if "deletionTimestamp" not in p["metadata"]]
    assert [p["spec"]["nodeName"] for p in alive] == ["node-1", "node-1"]
    await client.delete("nodes", "node-2")
    await client.settle(60)
    assert client.find("pods", victims[0]["metadata"]["name"]) is None


async def test_a_node_that_comes_back_in_time_keeps_its_pods(client: ObjectClient) -> None:
    await client.create("deployments", "web", workload(1))
    await client.settle(1)
    (before,) = client.names("pods")
    client.workloads.remove_node("node-1")
    await client.settle(120)
    client.workloads.restore_node("node-1")
    await client.settle(10)
    assert condition(client.get("nodes", "node-1"), "Ready")["status"] == "True"
    assert client.get("nodes", "node-1")["spec"].get("taints") in (None, [])
    await client.settle(400)
    assert client.names("pods") == [before]
    assert condition(client.get("pods", before), "Ready")["status"] == "True"


async def test_a_cordoned_node_gets_no_more_pods(client: ObjectClient) -> None:
    await client.change("nodes", "node-1", unschedulable=True)
    await client.create("pods", "lone", template()["spec"])
    await client.settle(1)
    assert "unschedulable" in condition(client.get("pods", "lone"), "PodScheduled")["message"]


async def test_a_pod_that_would_preempt_others_learns_that_the_engine_does_not(client: ObjectClient) -> None:
    await client.create("priorityclasses", "high", value=1000)
    resources = {"requests": {"cpu": "40"}}
    containers = [{"name": "main", "image": "app:1", "resources": resources}]
    await client.create("pods", "low", {"containers": containers})
    await client.settle(1)
    await client.create("pods", "high", {"containers": containers, "priorityClassName": "high"})
    await client.create("priorityclasses", "patient", value=1000, preemptionPolicy="Never")
    await client.create("pods", "patient", {"containers": containers, "priorityClassName": "patient"})
    await client.settle(1)
    start = "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: "
    assert condition(client.get("pods", "high"), "PodScheduled")["message"] == (
        f"{start}0/1 nodes are available: 1 node(s) have pods of lower priority, which the embedded engine does "
        "not preempt."
    )
    message = condition(client.get("pods", "patient"), "PodScheduled")["message"]
    assert message == f"{start}not eligible due to preemptionPolicy=Never."


async def test_a_pod_is_scheduled_when_another_that_blocked_it_has_ended(client: ObjectClient) -> None:
    resources = {"requests": {"cpu": "40"}}
    containers = [{"name": "main", "image": "app:1", "resources": resources}]
    client.workloads.finish("first", after=30)
    await client.create("pods", "first", {"containers": containers, "restartPolicy": "Never"})
    await client.settle(1)
    await client.create("pods", "second", {"containers": containers})
    await client.settle(1)
    assert not client.get("pods", "second")["spec"].get("nodeName")
    await client.settle(40)
    assert client.get("pods", "second")["spec"]["nodeName"] == "node-1"
