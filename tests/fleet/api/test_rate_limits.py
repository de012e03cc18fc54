"""Rate limits over HTTP, shared by replicas."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kapsa.fleet.infrastructure.postgres.database import Database
from tests.fleet.api.harness import ApiClient, application, token

PATH = "/api/v1/operators"
START = datetime(2027, 1, 4, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize("listed", ["operators", "clusters"])
async def test_a_list_is_limited_to_60_per_minute_and_user(listed: str, database: Database) -> None:
    path = f"/api/v1/{listed}"
    database.set_clock(START)
    replicas = [ApiClient(application(database), token("maria", "Viewer")) for _ in range(2)]
    for number in range(60):
        assert (await replicas[number % 2].get(path)).status_code == 200
    for replica in replicas:
        refused = await replica.get(path)
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "60"
        assert refused.headers["content-type"] == "application/problem+json"
    assert (await replicas[0].as_user("olaf", "Viewer").get(path)).status_code == 200
    database.set_clock(START + timedelta(seconds=61))
    assert (await replicas[0].get(path)).status_code == 200


async def test_deployments_are_limited_to_10_per_minute_and_user(database: Database) -> None:
    database.set_clock(START)
    client = ApiClient(application(database), token("maria", "Operator"))
    statuses = [(await client.post("/api/v1/deployments", {})).status_code for _ in range(11)]
    assert statuses == [400] * 10 + [429]
    assert (await client.as_user("olaf", "Operator").post("/api/v1/deployments", {})).status_code == 400
    database.set_clock(START + timedelta(seconds=61))
    assert (await client.post("/api/v1/deployments", {})).status_code == 400


async def test_headers_of_the_caller_do_not_change_the_limit(database: Database) -> None:
    database.set_clock(START)
    client = ApiClient(application(database), token("maria", "Viewer"))
    statuses = [
        (
            await client.get(PATH, headers={"X-Forwarded-For": f"10.0.0.{number}", "X-User": str(number)})
        ).status_code
        for number in range(61)
    ]
    assert statuses[-1] == 429


async def test_refused_callers_use_up_no_limit_of_others(database: Database) -> None:
    database.set_clock(START)
    client = ApiClient(application(database), token("maria", "Operator"))
    for _ in range(60):
        assert (await client.delete(f"{PATH}/none")).status_code == 404
    assert (await client.delete(f"{PATH}/none")).status_code == 429
    assert (await client.get(PATH)).status_code == 200


async def test_the_inventory_of_clusters_is_limited_to_30_per_minute_and_user(database: Database) -> None:
    """A reader may have it taken again, which reads a whole cluster."""
    database.set_clock(START)
    client = ApiClient(application(database), token("maria", "Viewer"))
    path = "/api/v1/clusters/none/releases"
    statuses = [(await client.get(path, params={"refresh": "true"})).status_code for _ in range(31)]
    assert statuses == [404] * 30 + [429]
