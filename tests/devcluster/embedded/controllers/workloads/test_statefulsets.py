"""StatefulSets: order, identity, storage."""

from __future__ import annotations

from typing import Any

import pytest

from tests.devcluster.embedded.controllers.client import ObjectClient, condition, template, workload

pytestmark = pytest.mark.virtual_time


def claims(**more: Any) -> dict[str, Any]:
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    return {"serviceName": "db", "volumeClaimTemplates": [claim], **more}


async def test_each_pod_starts_after_the_previous_one_is_ready(client: ObjectClient) -> None:
    client.workloads.delay(ready=10)
    await client.create("statefulsets", "db", workload(3, serviceName="db"))
    order = []
    for _ in range(4):
        await client.settle(9)
        order.append(client.names("pods"))
    assert order == [["db-0"], ["db-0", "db-1"], ["db-0", "db-1", "db-2"], ["db-0", "db-1", "db-2"]]
    pod = client.get("pods", "db-1")
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("db-1", "db")
    assert pod["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] == "db-1"
    assert pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == "1"


async def test_parallel_management_starts_all_at_once(client: ObjectClient) -> None:
    client.workloads.delay(ready=10)
    await client.create("statefulsets", "db", workload(3, podManagementPolicy="Parallel"))
    await client.settle(1)
    assert client.names("pods") == ["db-0", "db-1", "db-2"]


async def test_scaling_down_deletes_one_pod_at_a_time_from_the_highest_ordinal(client: ObjectClient) -> None:
    await client.create("statefulsets", "db", workload(3))
    await client.settle()
    client.workloads.delay(terminate=10)
    await client.change("statefulsets", "db", replicas=1)
    await client.settle(5)
    leaving = [p["metadata"]["name"] for p in client.list("pods") if "deletionTimestamp" in p["metadata"]]
    assert leaving == ["db-2"]
    await client.settle(30)
    assert client.names("pods") == ["db-0"]


async def test_an_update_replaces_pods_from_the_highest_ordinal_down(client: ObjectClient) -> None:
    await client.create("statefulsets", "db", workload(3))
    await client.settle()
    first = client.get("statefulsets", "db")["status"]["currentRevision"]
    client.workloads.delay(ready=10)
    await client.change("statefulsets", "db", template=template("app:2"))
    await client.settle(5)
    images = {p["metadata"]["name"]: p["spec"]["containers"][0]["image"] for p in client.list("pods")}
    assert images == {"db-0": "app:1", "db-1": "app:1", "db-2": "app:2"}
    status = client.get("statefulsets", "db")["status"]
    assert status["currentRevision"] == first != status["updateRevision"]
    await client.settle(60)
    status = client.get("statefulsets", "db")["status"]
    assert status["currentRevision"] == status["updateRevision"] != first
    assert (status["updatedReplicas"], status["readyReplicas"]) == (3, 3)


async def test_a_partition_keeps_lower_ordinals_at_the_old_revision(client: ObjectClient) -> None:
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    await client.create("statefulsets", "db", workload(3, updateStrategy=rolling))
    await client.settle()
    await client.change("statefulsets", "db", template=template("app:2"))
    await client.settle(60)
    images = [p["spec"]["containers"][0]["image"] for p in client.list("pods")]
    assert images == ["app:1", "app:1", "app:2"]
    await client.delete("pods", "db-0")
    await client.settle(60)
    assert client.get("pods", "db-0")["spec"]["containers"][0]["image"] == "app:1"


async def test_on_delete_updates_only_deleted_pods(client: ObjectClient) -> None:
    await client.create("statefulsets", "db", workload(2, updateStrategy={"type": "OnDelete"}))
    await client.settle()
    await client.change("statefulsets", "db", template=template("app:2"))
    await client.settle(60)
    assert {p["spec"]["containers"][0]["image"] for p in client.list("pods")} == {"app:1"}
    await client.delete("pods", "db-1")
    await client.settle(60)
    assert client.get("pods", "db-1")["spec"]["containers"][0]["image"] == "app:2"


async def test_a_broken_pod_blocks_the_pods_after_it(client: ObjectClient) -> None:
    client.workloads.crash("db-1")
    await client.create("statefulsets", "db", workload(3))
    await client.settle(600)
    assert client.names("pods") == ["db-0", "db-1"]


async def test_each_pod_gets_its_own_claim_which_outlives_it(client: ObjectClient) -> None:
    await client.create("statefulsets", "db", workload(2, **claims()))
    await client.settle()
    assert client.names("persistentvolumeclaims") == ["data-db-0", "data-db-1"]
    claim = client.get("persistentvolumeclaims", "data-db-0")
    assert claim["status"]["phase"] == "Bound"
    volumes = client.get("pods", "db-0")["spec"]["volumes"]
    assert {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}} in volumes
    await client.delete("statefulsets", "db")
    await client.settle(60)
    assert client.names("pods") == []
    assert client.names("persistentvolumeclaims") == ["data-db-0", "data-db-1"]


async def test_the_retention_policy_deletes_claims_when_the_set_is_deleted_or_scaled_down(
    client: ObjectClient,
) -> None:
    policy = {"whenDeleted": "Delete", "whenScaled": "Delete"}
    await client.create(
        "statefulsets", "db", workload(2, **claims(persistentVolumeClaimRetentionPolicy=policy))
    )
    await client.settle()
    await client.change("statefulsets", "db", replicas=1)
    await client.settle(60)
    assert client.names("persistentvolumeclaims") == ["data-db-0"]
    await client.delete("statefulsets", "db")
    await client.settle(60)
    assert client.names("persistentvolumeclaims") == []
    assert client.names("persistentvolumes") == []


async def test_revisions_beyond_the_limit_are_removed_and_a_rollback_reuses_one(client: ObjectClient) -> None:
    await client.create("statefulsets", "db", workload(1, revisionHistoryLimit=1))
    for image in ("app:2", "app:3", "app:4"):
        await client.settle(60)
        await client.change("statefulsets", "db", template=template(image))
    await client.settle(60)
    revisions = {
        r["data"]["spec"]["template"]["spec"]["containers"][0]["image"]: r["revision"]
        for r in client.list("controllerrevisions")
    }
    assert revisions == {"app:3": 3, "app:4": 4}
    await client.change("statefulsets", "db", template=template("app:3"))
    await client.settle(60)
    newest = max(client.list("controllerrevisions"), key=lambda r: r["revision"])
    assert newest["revision"] == 5
    assert newest["metadata"]["name"] == client.get("statefulsets", "db")["status"]["currentRevision"]
    assert condition(client.get("pods", "db-0"), "Ready")["status"] == "True"
