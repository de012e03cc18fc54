"""Claims, volumes and storage classes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.devcluster.embedded.controllers.client import ObjectClient

pytestmark = pytest.mark.virtual_time


def claim(size: str = "1Gi", **more: Any) -> dict[str, Any]:
    return {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **more}


async def test_a_claim_without_a_class_gets_the_default_one_and_a_volume(client: ObjectClient) -> None:
    await client.create("persistentvolumeclaims", "data", claim())
    await client.settle()
    bound = client.get("persistentvolumeclaims", "data")
    assert bound["status"] == {
        "phase": "Bound",
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
    }
    assert bound["spec"]["storageClassName"] == "standard"
    volume = client.get("persistentvolumes", bound["spec"]["volumeName"])
    assert volume["status"]["phase"] == "Bound"
    assert volume["spec"]["claimRef"]["uid"] == bound["metadata"]["uid"]


async def test_a_claim_in_use_stays_until_its_pod_is_gone(client: ObjectClient) -> None:
    await client.create("persistentvolumeclaims", "data", claim())
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    await client.create("pods", "user", {"volumes": volumes, "containers": [{"name": "c", "image": "app:1"}]})
    await client.settle()
    await client.delete("persistentvolumeclaims", "data")
    await client.settle(60)
    assert client.get("persistentvolumeclaims", "data")["metadata"]["finalizers"] == [
        "kubernetes.io/pvc-protection"
    ]
    await client.delete("pods", "user")
    await client.settle(60)
    assert client.find("persistentvolumeclaims", "data") is None
    assert client.names("persistentvolumes") == []


async def test_a_manually_created_volume_is_bound_to_a_matching_claim(client: ObjectClient) -> None:
    for name, size in (("small", "1Gi"), ("fitting", "5Gi"), ("huge", "50Gi")):
        spec = {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "manual",
            "hostPath": {"path": "/data"},
        }
        await client.create("persistentvolumes", name, spec)
    await client.settle()
    assert client.get("persistentvolumes", "fitting")["status"]["phase"] == "Available"
    await client.create("persistentvolumeclaims", "data", claim("3Gi", storageClassName="manual"))
    await client.settle()
    assert client.get("persistentvolumeclaims", "data")["spec"]["volumeName"] == "fitting"
    await client.delete("persistentvolumeclaims", "data")
    await client.settle()
    assert client.get("persistentvolumes", "fitting")["status"]["phase"] == "Released"


async def test_a_claim_of_an_unknown_class_stays_pending_and_reports_the_reason(client: ObjectClient) -> None:
    await client.create("persistentvolumeclaims", "data", claim(storageClassName="gold"))
    await client.settle()
    assert client.get("persistentvolumeclaims", "data")["status"]["phase"] == "Pending"
    assert client.events("data") == [("ProvisioningFailed", 'storageclass.storage.k8s.io "gold" not found')]


async def test_a_bound_claim_that_requests_more_storage_is_expanded(client: ObjectClient) -> None:
    await client.create("persistentvolumeclaims", "data", claim())
    await client.settle()
    await client.change("persistentvolumeclaims", "data", resources={"requests": {"storage": "4Gi"}})
    await client.settle()
    assert client.get("persistentvolumeclaims", "data")["status"]["capacity"] == {"storage": "4Gi"}


async def test_an_attributes_class_in_use_stays_until_its_claim_is_gone(client: ObjectClient) -> None:
    await client.create(
        "volumeattributesclasses", "gold", driverName="csi.example.com", parameters={"iops": "9"}
    )
    await client.create("persistentvolumeclaims", "data", claim(volumeAttributesClassName="gold"))
    await client.settle()
    await client.delete("volumeattributesclasses", "gold")
    await client.settle(60)
    assert client.get("volumeattributesclasses", "gold")["metadata"]["deletionTimestamp"]
    await client.delete("persistentvolumeclaims", "data")
    await client.settle(60)
    assert client.find("volumeattributesclasses", "gold") is None
