"""Pods on nodes: starting, crashing, failing to pull, ending, being evicted."""

from __future__ import annotations

from typing import Any

import pytest

from tests.devcluster.embedded.controllers.client import World, condition, template, workload

pytestmark = pytest.mark.virtual_time


def state(pod: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = pod["status"]["containerStatuses"][0]
    return found


async def test_a_pod_is_scheduled_starts_and_becomes_ready_with_its_delays(world: World) -> None:
    world.workloads.delay(schedule=2, start=3, ready=4)
    await world.create("pods", "lone", template()["spec"])
    await world.settle(1)
    pod = world.get("pods", "lone")
    assert (pod["status"]["phase"], pod["spec"].get("nodeName")) == ("Pending", None)
    await world.settle(2)
    pod = world.get("pods", "lone")
    assert pod["spec"]["nodeName"] == "node-1"
    assert state(pod)["state"]["waiting"]["reason"] == "ContainerCreating"
    await world.settle(3)
    pod = world.get("pods", "lone")
    assert pod["status"]["phase"] == "Running"
    assert condition(pod, "Ready")["status"] == "False"
    assert condition(pod, "Ready")["message"] == "containers with unready status: [main]"
    await world.settle(4)
    pod = world.get("pods", "lone")
    assert condition(pod, "Ready")["status"] == "True"
    assert pod["status"]["podIP"].startswith("10.244.")
    assert pod["metadata"]["generation"] == 1
    reasons = [reason for reason, _ in world.events("lone")]
    assert reasons == ["Scheduled", "Pulled", "Created", "Started"]


async def test_a_crashing_container_backs_off_longer_each_time(world: World) -> None:
    world.workloads.crash("lone", exit_code=2, message="no database")
    await world.create("pods", "lone", template()["spec"])
    counts = {}
    for seconds in (1, 12, 32, 72, 152, 312, 612, 912):
        await world.settle(seconds - max(counts, default=0))
        counts[seconds] = state(world.get("pods", "lone"))["restartCount"]
    assert list(counts.values()) == [1, 2, 3, 4, 5, 6, 7, 8]
    pod = world.get("pods", "lone")
    waiting = state(pod)["state"]["waiting"]
    assert waiting["reason"] == "CrashLoopBackOff"
    uid = pod["metadata"]["uid"]
    assert waiting["message"] == f"back-off 5m0s restarting failed container=main pod=lone_default({uid})"
    ended = state(pod)["lastState"]["terminated"]
    assert (ended["exitCode"], ended["reason"], ended["message"]) == (2, "Error", "no database")
    assert pod["status"]["phase"] == "Running"
    assert condition(pod, "Ready")["status"] == "False"


async def test_a_container_that_crashes_a_few_times_stays_up_then(world: World) -> None:
    world.workloads.crash("lone", times=2)
    await world.create("pods", "lone", template()["spec"])
    await world.settle(60)
    pod = world.get("pods", "lone")
    assert state(pod)["restartCount"] == 2
    assert condition(pod, "Ready")["status"] == "True"


async def test_a_pod_that_is_never_restarted_fails(world: World) -> None:
    world.workloads.crash("lone", exit_code=9, after=5)
    await world.create("pods", "lone", template(restartPolicy="Never")["spec"])
    await world.settle(2)
    assert world.get("pods", "lone")["status"]["phase"] == "Running"
    await world.settle(10)
    pod = world.get("pods", "lone")
    assert pod["status"]["phase"] == "Failed"
    assert state(pod)["state"]["terminated"]["exitCode"] == 9


async def test_a_broken_image_alternates_to_back_off_and_heals(world: World) -> None:
    world.workloads.fail_image("broken:*")
    await world.create("pods", "lone", template("broken:1")["spec"])
    await world.settle(1)
    waiting = state(world.get("pods", "lone"))["state"]["waiting"]
    assert waiting["reason"] in ("ErrImagePull", "ImagePullBackOff")
    await world.settle(20)
    pod = world.get("pods", "lone")
    assert state(pod)["state"]["waiting"]["reason"] == "ImagePullBackOff"
    assert pod["status"]["phase"] == "Pending"
    assert ("Failed", "Error: ErrImagePull") in world.events("lone")
    world.workloads.heal()
    await world.settle(20)
    assert condition(world.get("pods", "lone"), "Ready")["status"] == "True"


async def test_a_deleted_pod_stays_for_its_containers_to_end(world: World) -> None:
    world.workloads.delay(terminate=10)
    await world.create("pods", "lone", template()["spec"])
    await world.settle(1)
    await world.delete("pods", "lone")
    await world.settle(5)
    assert world.get("pods", "lone")["metadata"]["deletionGracePeriodSeconds"] == 30
    await world.settle(10)
    assert world.find("pods", "lone") is None


async def test_a_pod_that_fits_nowhere_says_so_until_a_node_fits(world: World) -> None:
    await world.create("pods", "lone", template(nodeSelector={"disk": "ssd"})["spec"])
    await world.settle(1)
    scheduled = condition(world.get("pods", "lone"), "PodScheduled")
    assert (scheduled["status"], scheduled["reason"]) == ("False", "Unschedulable")
    assert scheduled["message"].startswith(
        "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
    )
    node = world.get("nodes", "node-1")
    node["metadata"]["labels"]["disk"] = "ssd"
    await world.update("nodes", node)
    await world.settle(1)
    assert condition(world.get("pods", "lone"), "Ready")["status"] == "True"


async def test_a_pod_too_big_for_its_node_waits_for_room(world: World) -> None:
    big = template()["spec"]
    big["containers"][0]["resources"] = {"requests": {"cpu": "40"}}
    await world.create("pods", "first", big)
    await world.settle(1)
    await world.create("pods", "second", big)
    await world.settle(1)
    assert "Insufficient cpu" in condition(world.get("pods", "second"), "PodScheduled")["message"]
    await world.delete("pods", "first")
    await world.settle(1)
    assert condition(world.get("pods", "second"), "Ready")["status"] == "True"


async def test_pods_of_a_vanished_node_are_evicted_after_their_toleration(world: World) -> None:
    await world.create("nodes", "node-2")
    await world.create("deployments", "web", workload(2))
    await world.settle(1)
    victims = [p for p in world.list("pods") if p["spec"]["nodeName"] == "node-2"]
    assert len(victims) == 1
    world.workloads.remove_node("node-2")
    await world.settle(40)
    assert condition(world.get("nodes", "node-2"), "Ready")["status"] == "True"
    await world.settle(20)
    ready = condition(world.get("nodes", "node-2"), "Ready")
    assert (ready["status"], ready["reason"]) == ("Unknown", "NodeStatusUnknown")
    pod = world.get("pods", victims[0]["metadata"]["name"])
    assert condition(pod, "Ready")["status"] == "False"
    assert world.get("deployments", "web")["status"]["availableReplicas"] == 1
    await world.settle(310)
    pod = world.get("pods", victims[0]["metadata"]["name"])
    assert "deletionTimestamp" in pod["metadata"]
    assert condition(pod, "DisruptionTarget")["reason"] == "DeletionByTaintManager"
    alive = [p for p in world.list("pods") if "deletionTimestamp" not in p["metadata"]]
    assert [p["spec"]["nodeName"] for p in alive] == ["node-1", "node-1"]
    await world.delete("nodes", "node-2")
    await world.settle(60)
    assert world.find("pods", victims[0]["metadata"]["name"]) is None


async def test_a_node_that_comes_back_in_time_keeps_its_pods(world: World) -> None:
    await world.create("deployments", "web", workload(1))
    await world.settle(1)
    (before,) = world.names("pods")
    world.workloads.remove_node("node-1")
    await world.settle(120)
    world.workloads.restore_node("node-1")
    await world.settle(10)
    assert condition(world.get("nodes", "node-1"), "Ready")["status"] == "True"
    assert world.get("nodes", "node-1")["spec"].get("taints") in (None, [])
    await world.settle(400)
    assert world.names("pods") == [before]
    assert condition(world.get("pods", before), "Ready")["status"] == "True"


async def test_a_cordoned_node_takes_no_more_pods(world: World) -> None:
    await world.change("nodes", "node-1", unschedulable=True)
    await world.create("pods", "lone", template()["spec"])
    await world.settle(1)
    assert "unschedulable" in condition(world.get("pods", "lone"), "PodScheduled")["message"]
