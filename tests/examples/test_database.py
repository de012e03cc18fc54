"""The database operator."""

from typing import Any

from examples.database.database import Database, operator
from tests.examples.namespaced_harness import NamespacedHarness

CLAIM = "v1/PersistentVolumeClaim"
CRON_JOB = "batch/v1/CronJob"


async def ask_for(harness: NamespacedHarness, **spec: Any) -> None:
    await harness.apply(Database, "orders", **{"passwordSecret": "orders-password", **spec})


async def test_a_database_gets_its_volume_service_and_stateful_set(harness: NamespacedHarness) -> None:
    await harness.run(operator)
    await ask_for(harness, storage="5Gi", version="16")
    db = await harness.condition(Database, "orders", "Ready", "True")
    assert db.status.phase == "Running"
    assert db.status.endpoint == f"orders.{harness.namespace}.svc.cluster.local"
    claim = await harness.get(CLAIM, "orders-data")
    assert claim["spec"]["resources"]["requests"]["storage"] == "5Gi"
    stateful_set = await harness.get("apps/v1/StatefulSet", "orders")
    assert stateful_set["spec"]["template"]["spec"]["containers"][0]["image"] == "postgres:16"
    assert (await harness.get("v1/Service", "orders"))["spec"]["ports"][0]["port"] == 5432
    assert await harness.get(CRON_JOB, "orders-backup") is None


async def test_a_backup_comes_and_goes_with_the_spec_and_its_volume_stays(harness: NamespacedHarness) -> None:
    await harness.run(operator)
    await ask_for(harness, backup={"schedule": "0 3 * * *", "storage": "2Gi"})
    cron_job = await harness.exists(CRON_JOB, "orders-backup")
    assert cron_job["spec"]["schedule"] == "0 3 * * *"
    await harness.exists(CLAIM, "orders-backup")
    await ask_for(harness, backup={"enabled": False})
    await harness.gone(CRON_JOB, "orders-backup")
    assert await harness.get(CLAIM, "orders-backup") is not None


async def test_the_data_outlives_the_database_and_is_used_again(harness: NamespacedHarness) -> None:
    await harness.run(operator)
    await ask_for(harness)
    await harness.condition(Database, "orders", "Ready", "True")
    claim = await harness.get(CLAIM, "orders-data")
    await harness.client.delete(Database, "orders", namespace=harness.namespace)
    await harness.gone("apps/v1/StatefulSet", "orders")
    assert (await harness.get(CLAIM, "orders-data"))["metadata"]["uid"] == claim["metadata"]["uid"]
    await ask_for(harness)
    await harness.condition(Database, "orders", "Ready", "True")
    assert (await harness.get(CLAIM, "orders-data"))["metadata"]["uid"] == claim["metadata"]["uid"]


async def test_the_data_is_deleted_with_the_database_if_configured(harness: NamespacedHarness) -> None:
    await harness.run(operator)
    await ask_for(harness, onDelete="Delete")
    await harness.condition(Database, "orders", "Ready", "True")
    await harness.client.delete(Database, "orders", namespace=harness.namespace)
    await harness.gone(Database, "orders")

    async def claim_is_going() -> bool:
        claim = await harness.get(CLAIM, "orders-data")
        return claim is None or "deletionTimestamp" in claim["metadata"]

    await harness.until(claim_is_going, "the claim is deleted")


async def test_storage_that_shrinks_is_refused_with_an_event(harness: NamespacedHarness) -> None:
    await harness.run(operator)
    await ask_for(harness, storage="5Gi")
    await harness.condition(Database, "orders", "Ready", "True")
    await ask_for(harness, storage="1Gi")

    async def reported() -> bool:
        events = await harness.inner.events(name="orders")
        return any("orders-data cannot shrink to 1Gi" in event["note"] for event in events)

    await harness.until(reported, "an event reports that it cannot shrink")
    claim = await harness.get(CLAIM, "orders-data")
    assert claim["spec"]["resources"]["requests"]["storage"] == "5Gi"


async def test_a_claim_of_another_owner_is_not_adopted(harness: NamespacedHarness) -> None:
    await harness.provide_claim("orders-data")
    await harness.run(operator)
    await ask_for(harness)

    async def reported() -> bool:
        events = await harness.inner.events(name="orders")
        return any("orders-data belongs to another owner" in event["note"] for event in events)

    await harness.until(reported, "an event reports the claim of another owner")
    assert "labels" not in (await harness.get(CLAIM, "orders-data"))["metadata"]
    assert await harness.get("apps/v1/StatefulSet", "orders") is None
