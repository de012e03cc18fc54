"""Claims, volumes and storage classes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.devcluster.embedded.controllers.client import World

pytestmark = pytest.mark.virtual_time


def claim(size: str = "1Gi", **more: Any) -> dict[str, Any]:
    return {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **more}


async def test_a_claim_without_a_class_gets_the_default_one_and_a_volume(world: World) -> None:
    await world.create("persistentvolumeclaims", "data", claim())
    await world.settle()
    bound = world.get("persistentvolumeclaims", "data")
    assert bound["status"] == {
        "phase": "Bound",
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
    }
    assert bound["spec"]["storageClassName"] == "standard"
    volume = world.get("persistentvolumes", bound["spec"]["volumeName"])
    assert volume["status"]["phase"] == "Bound"
    assert volume["spec"]["claimRef"]["uid"] == bound["metadata"]["uid"]


async def test_a_claim_in_use_stays_until_its_pod_is_gone(world: World) -> None:
    await world.create("persistentvolumeclaims", "data", claim())
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    await world.create("pods", "user", {"volumes": volumes, "containers": [{"name": "c", "image": "app:1"}]})
    await world.settle()
    await world.delete("persistentvolumeclaims", "data")
    await world.settle(60)
    assert world.get("persistentvolumeclaims", "data")["metadata"]["finalizers"] == [
        "kubernetes.io/pvc-protection"
    ]
    await world.delete("pods", "user")
    await world.settle(60)
    assert world.find("persistentvolumeclaims", "data") is None
    assert world.names("persistentvolumes") == []


async def test_a_volume_made_by_hand_is_bound_to_the_claim_it_fits(world: World) -> None:
    for name, size in (("small", "1Gi"), ("fitting", "5Gi"), ("huge", "50Gi")):
        spec = {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "manual",
            "hostPath": {"path": "/data"},
        }
        await world.create("persistentvolumes", name, spec)
    await world.settle()
    assert world.get("persistentvolumes", "fitting")["status"]["phase"] == "Available"
    await world.create("persistentvolumeclaims", "data", claim("3Gi", storageClassName="manual"))
    await world.settle()
    assert world.get("persistentvolumeclaims", "data")["spec"]["volumeName"] == "fitting"
    await world.delete("persistentvolumeclaims", "data")
    await world.settle()
    assert world.get("persistentvolumes", "fitting")["status"]["phase"] == "Released"


async def test_a_claim_of_an_unknown_class_stays_pending_and_says_why(world: World) -> None:
    await world.create("persistentvolumeclaims", "data", claim(storageClassName="gold"))
    await world.settle()
    assert world.get("persistentvolumeclaims", "data")["status"]["phase"] == "Pending"
    assert world.events("data") == [("ProvisioningFailed", 'storageclass.storage.k8s.io "gold" not found')]


async def test_a_bound_claim_that_asks_for_more_grows(world: World) -> None:
    await world.create("persistentvolumeclaims", "data", claim())
    await world.settle()
    await world.change("persistentvolumeclaims", "data", resources={"requests": {"storage": "4Gi"}})
    await world.settle()
    assert world.get("persistentvolumeclaims", "data")["status"]["capacity"] == {"storage": "4Gi"}
