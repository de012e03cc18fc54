"""Idempotency keys over HTTP."""

from __future__ import annotations

import asyncio

import pytest

from kapsa.fleet.infrastructure.postgres.database import Database
from tests.fleet.api.harness import WIDGET, ApiClient, FakeCharts, application, token

PATH = "/api/v1/operators"
KEY = {"Idempotency-Key": "8e03978e-40d5-43dd-bc93-6894a57f9324"}


async def test_a_request_that_is_sent_twice_has_one_effect_and_one_response(api: ApiClient) -> None:
    first = await api.post(PATH, WIDGET, headers=KEY)
    second = await api.post(PATH, WIDGET, headers=KEY)
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.content == second.content
    assert second.headers["idempotency-replayed"] == "true"
    assert second.headers["location"] == first.headers["location"]
    assert second.headers["x-content-type-options"] == "nosniff"
    entries = (await api.get("/api/v1/audit")).json()["items"]
    assert [entry["action"] for entry in entries] == ["operator.register"]


async def test_a_key_of_another_request_is_refused_with_422(api: ApiClient) -> None:
    await api.post(PATH, WIDGET, headers=KEY)
    other = await api.post(PATH, {**WIDGET, "name": "other"}, headers=KEY)
    assert other.status_code == 422
    assert (await api.post(f"{PATH}/widget/versions", {}, headers=KEY)).status_code == 422
    assert (await api.get(f"{PATH}/other")).status_code == 404


async def test_keys_of_different_callers_are_different(api: ApiClient) -> None:
    await api.post(PATH, WIDGET, headers=KEY)
    other = await api.as_user("olaf", "Operator").post(PATH, {**WIDGET, "name": "other"}, headers=KEY)
    assert other.status_code == 201


async def test_a_request_without_effect_frees_its_key(api: ApiClient) -> None:
    assert (await api.post(PATH, {**WIDGET, "name": "UPPER"}, headers=KEY)).status_code == 400
    assert (await api.post(PATH, WIDGET, headers=KEY)).status_code == 201


async def test_a_key_gives_no_rights(api: ApiClient) -> None:
    await api.as_user("maria", "Operator").post(PATH, WIDGET, headers=KEY)
    assert (await api.as_user("maria", "Viewer").post(PATH, WIDGET, headers=KEY)).status_code == 403


async def test_concurrent_requests_with_one_key_execute_once(database: Database) -> None:
    started, finish = asyncio.Event(), asyncio.Event()

    class SlowCharts(FakeCharts):
        async def fetch(self, source: object, version: str, login: object) -> bytes:
            started.set()
            await finish.wait()
            return await super().fetch(source, version, login)

    app = application(database)
    app.state.use_cases.operators._charts = SlowCharts()
    client = ApiClient(app, token())
    first = asyncio.create_task(client.post(PATH, WIDGET, headers=KEY))
    await asyncio.wait_for(started.wait(), 120)
    second = await client.post(PATH, WIDGET, headers=KEY)
    assert second.status_code == 409
    assert "is being handled" in second.json()["detail"]
    finish.set()
    assert (await first).status_code == 201
    assert (await client.post(PATH, WIDGET, headers=KEY)).headers["idempotency-replayed"] == "true"


@pytest.mark.parametrize("key", ["", "k" * 129, "a\tb", "ключ".encode()])
async def test_a_malformed_key_is_refused(api: ApiClient, key: str | bytes) -> None:
    response = await api.request("POST", PATH, json=WIDGET, headers=[("Idempotency-Key", key)])
    assert response.status_code == 400
    assert response.json()["errors"][0]["path"] == "/Idempotency-Key"
