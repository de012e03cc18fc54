"""The database operator."""

from typing import Any

from examples.database.database import Database, operator
from tests.examples.world import World

CLAIM = "v1/PersistentVolumeClaim"
CRON_JOB = "batch/v1/CronJob"


async def ask_for(world: World, **spec: Any) -> None:
    await world.apply(Database, "orders", **{"passwordSecret": "orders-password", **spec})


async def test_a_database_gets_its_volume_service_and_stateful_set(world: World) -> None:
    await world.run(operator)
    await ask_for(world, storage="5Gi", version="16")
    db = await world.condition(Database, "orders", "Ready", "True")
    assert db.status.phase == "Running"
    assert db.status.endpoint == f"orders.{world.namespace}.svc.cluster.local"
    claim = await world.get(CLAIM, "orders-data")
    assert claim["spec"]["resources"]["requests"]["storage"] == "5Gi"
    stateful_set = await world.get("apps/v1/StatefulSet", "orders")
    assert stateful_set["spec"]["template"]["spec"]["containers"][0]["image"] == "postgres:16"
    assert (await world.get("v1/Service", "orders"))["spec"]["ports"][0]["port"] == 5432
    assert await world.get(CRON_JOB, "orders-backup") is None


async def test_a_backup_comes_and_goes_with_the_spec_and_its_volume_stays(world: World) -> None:
    await world.run(operator)
    await ask_for(world, backup={"schedule": "0 3 * * *", "storage": "2Gi"})
    cron_job = await world.exists(CRON_JOB, "orders-backup")
    assert cron_job["spec"]["schedule"] == "0 3 * * *"
    await world.exists(CLAIM, "orders-backup")
    await ask_for(world, backup={"enabled": False})
    await world.gone(CRON_JOB, "orders-backup")
    assert await world.get(CLAIM, "orders-backup") is not None


async def test_the_data_outlives_the_database_and_is_found_again(world: World) -> None:
    await world.run(operator)
    await ask_for(world)
    await world.condition(Database, "orders", "Ready", "True")
    claim = await world.get(CLAIM, "orders-data")
    await world.client.delete(Database, "orders", namespace=world.namespace)
    await world.gone("apps/v1/StatefulSet", "orders")
    assert (await world.get(CLAIM, "orders-data"))["metadata"]["uid"] == claim["metadata"]["uid"]
    await ask_for(world)
    await world.condition(Database, "orders", "Ready", "True")
    assert (await world.get(CLAIM, "orders-data"))["metadata"]["uid"] == claim["metadata"]["uid"]


async def test_the_data_goes_with_the_database_when_that_is_asked_for(world: World) -> None:
    await world.run(operator)
    await ask_for(world, onDelete="Delete")
    await world.condition(Database, "orders", "Ready", "True")
    await world.client.delete(Database, "orders", namespace=world.namespace)
    await world.gone(Database, "orders")

    async def claim_is_going() -> bool:
        claim = await world.get(CLAIM, "orders-data")
        return claim is None or "deletionTimestamp" in claim["metadata"]

    await world.until(claim_is_going, "the claim is deleted")


async def test_storage_that_shrinks_is_refused_with_an_event(world: World) -> None:
    await world.run(operator)
    await ask_for(world, storage="5Gi")
    await world.condition(Database, "orders", "Ready", "True")
    await ask_for(world, storage="1Gi")

    async def reported() -> bool:
        events = await world.harness.events(name="orders")
        return any("orders-data cannot shrink to 1Gi" in event["note"] for event in events)

    await world.until(reported, "an event tells that it cannot shrink")
    claim = await world.get(CLAIM, "orders-data")
    assert claim["spec"]["resources"]["requests"]["storage"] == "5Gi"


async def test_a_claim_of_somebody_else_is_not_taken(world: World) -> None:
    await world.provide_claim("orders-data")
    await world.run(operator)
    await ask_for(world)

    async def reported() -> bool:
        events = await world.harness.events(name="orders")
        return any("orders-data is not ours" in event["note"] for event in events)

    await world.until(reported, "an event tells that the claim is not ours")
    assert "labels" not in (await world.get(CLAIM, "orders-data"))["metadata"]
    assert await world.get("apps/v1/StatefulSet", "orders") is None
