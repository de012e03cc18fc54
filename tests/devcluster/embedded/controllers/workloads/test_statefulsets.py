"""StatefulSets: order, identity, storage."""

from __future__ import annotations

from typing import Any

import pytest

from tests.devcluster.embedded.controllers.client import World, condition, template, workload

pytestmark = pytest.mark.virtual_time


def claims(**more: Any) -> dict[str, Any]:
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    return {"serviceName": "db", "volumeClaimTemplates": [claim], **more}


async def test_pods_come_one_after_the_other_each_after_the_last_is_ready(world: World) -> None:
    world.workloads.delay(ready=10)
    await world.create("statefulsets", "db", workload(3, serviceName="db"))
    order = []
    for _ in range(4):
        await world.settle(9)
        order.append(world.names("pods"))
    assert order == [["db-0"], ["db-0", "db-1"], ["db-0", "db-1", "db-2"], ["db-0", "db-1", "db-2"]]
    pod = world.get("pods", "db-1")
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("db-1", "db")
    assert pod["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] == "db-1"
    assert pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == "1"


async def test_parallel_management_starts_all_at_once(world: World) -> None:
    world.workloads.delay(ready=10)
    await world.create("statefulsets", "db", workload(3, podManagementPolicy="Parallel"))
    await world.settle(1)
    assert world.names("pods") == ["db-0", "db-1", "db-2"]


async def test_scaling_down_goes_from_the_highest_ordinal_one_at_a_time(world: World) -> None:
    await world.create("statefulsets", "db", workload(3))
    await world.settle()
    world.workloads.delay(terminate=10)
    await world.change("statefulsets", "db", replicas=1)
    await world.settle(5)
    leaving = [p["metadata"]["name"] for p in world.list("pods") if "deletionTimestamp" in p["metadata"]]
    assert leaving == ["db-2"]
    await world.settle(30)
    assert world.names("pods") == ["db-0"]


async def test_an_update_replaces_pods_from_the_highest_ordinal_down(world: World) -> None:
    await world.create("statefulsets", "db", workload(3))
    await world.settle()
    first = world.get("statefulsets", "db")["status"]["currentRevision"]
    world.workloads.delay(ready=10)
    await world.change("statefulsets", "db", template=template("app:2"))
    await world.settle(5)
    images = {p["metadata"]["name"]: p["spec"]["containers"][0]["image"] for p in world.list("pods")}
    assert images == {"db-0": "app:1", "db-1": "app:1", "db-2": "app:2"}
    status = world.get("statefulsets", "db")["status"]
    assert status["currentRevision"] == first != status["updateRevision"]
    await world.settle(60)
    status = world.get("statefulsets", "db")["status"]
    assert status["currentRevision"] == status["updateRevision"] != first
    assert (status["updatedReplicas"], status["readyReplicas"]) == (3, 3)


async def test_a_partition_holds_the_lower_ordinals_back(world: World) -> None:
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    await world.create("statefulsets", "db", workload(3, updateStrategy=rolling))
    await world.settle()
    await world.change("statefulsets", "db", template=template("app:2"))
    await world.settle(60)
    images = [p["spec"]["containers"][0]["image"] for p in world.list("pods")]
    assert images == ["app:1", "app:1", "app:2"]
    await world.delete("pods", "db-0")
    await world.settle(60)
    assert world.get("pods", "db-0")["spec"]["containers"][0]["image"] == "app:1"


async def test_on_delete_waits_for_someone_to_delete_the_pods(world: World) -> None:
    await world.create("statefulsets", "db", workload(2, updateStrategy={"type": "OnDelete"}))
    await world.settle()
    await world.change("statefulsets", "db", template=template("app:2"))
    await world.settle(60)
    assert {p["spec"]["containers"][0]["image"] for p in world.list("pods")} == {"app:1"}
    await world.delete("pods", "db-1")
    await world.settle(60)
    assert world.get("pods", "db-1")["spec"]["containers"][0]["image"] == "app:2"


async def test_a_broken_pod_holds_up_the_whole_line(world: World) -> None:
    world.workloads.crash("db-1")
    await world.create("statefulsets", "db", workload(3))
    await world.settle(600)
    assert world.names("pods") == ["db-0", "db-1"]


async def test_each_pod_gets_its_own_claim_which_outlives_it(world: World) -> None:
    await world.create("statefulsets", "db", workload(2, **claims()))
    await world.settle()
    assert world.names("persistentvolumeclaims") == ["data-db-0", "data-db-1"]
    claim = world.get("persistentvolumeclaims", "data-db-0")
    assert claim["status"]["phase"] == "Bound"
    volumes = world.get("pods", "db-0")["spec"]["volumes"]
    assert {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}} in volumes
    await world.delete("statefulsets", "db")
    await world.settle(60)
    assert world.names("pods") == []
    assert world.names("persistentvolumeclaims") == ["data-db-0", "data-db-1"]


async def test_the_retention_policy_deletes_claims_with_the_set_and_when_it_shrinks(world: World) -> None:
    policy = {"whenDeleted": "Delete", "whenScaled": "Delete"}
    await world.create(
        "statefulsets", "db", workload(2, **claims(persistentVolumeClaimRetentionPolicy=policy))
    )
    await world.settle()
    await world.change("statefulsets", "db", replicas=1)
    await world.settle(60)
    assert world.names("persistentvolumeclaims") == ["data-db-0"]
    await world.delete("statefulsets", "db")
    await world.settle(60)
    assert world.names("persistentvolumeclaims") == []
    assert world.names("persistentvolumes") == []


async def test_revisions_beyond_the_limit_are_removed_and_a_rollback_reuses_one(world: World) -> None:
    await world.create("statefulsets", "db", workload(1, revisionHistoryLimit=1))
    for image in ("app:2", "app:3", "app:4"):
        await world.settle(60)
        await world.change("statefulsets", "db", template=template(image))
    await world.settle(60)
    revisions = {
        r["data"]["spec"]["template"]["spec"]["containers"][0]["image"]: r["revision"]
        for r in world.list("controllerrevisions")
    }
    assert revisions == {"app:3": 3, "app:4": 4}
    await world.change("statefulsets", "db", template=template("app:3"))
    await world.settle(60)
    newest = max(world.list("controllerrevisions"), key=lambda r: r["revision"])
    assert newest["revision"] == 5
    assert newest["metadata"]["name"] == world.get("statefulsets", "db")["status"]["currentRevision"]
    assert condition(world.get("pods", "db-0"), "Ready")["status"] == "True"
