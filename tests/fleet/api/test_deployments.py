"""Deployments and approvals over HTTP, carried out by the engine on the double of Helm, in virtual time."""

from __future__ import annotations

import asyncio
import json
import uuid
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from kapsa.fleet.api.authentication.tokens import TokenVerifier
from kapsa.fleet.api.event_stream import StreamPace
from kapsa.fleet.infrastructure.postgres.database import Database
from tests.fleet.api.harness import ApiClient, application, token, use_cases
from tests.fleet.rollout_harness import RolloutHarness

PATH = "/api/v1/deployments"
REQUEST: dict[str, Any] = {
    "operator": "cert-manager",
    "version": "2.0.0",
    "targets": {"environment": "Production"},
    "strategy": "Canary",
    "canaryConfig": {"initialPercentage": 50, "incrementPercentage": 20, "evaluationPeriod": "PT5M"},
}
QUICK = StreamPace(poll=0.02, check=0.05, keep_alive=0.05)


class Fleet:
    """An application and an engine over one database."""

    def __init__(self, database: Database) -> None:
        self.rollouts = RolloutHarness(database, "prod-1", "prod-2")
        cases = msgspec.structs.replace(
            use_cases(database, self.rollouts.vault),
            deployments=self.rollouts.deployments,
            approvals=self.rollouts.approvals,
        )
        self.app = application(database, use_cases=cases, stream_pace=QUICK)
        self.maria = ApiClient(self.app, token("maria", "Operator"))
        self.olga = ApiClient(self.app, token("olga", "EnvironmentOwner:Production"))
        self.ada = ApiClient(self.app, token("ada", "Admin"))
        self.victor = ApiClient(self.app, token("victor", "Viewer"))

    async def create(self, **changes: Any) -> str:
        response = await self.maria.post(PATH, {**REQUEST, **changes})
        assert response.status_code == 202, response.text
        assert response.headers["location"] == f"{PATH}/{response.json()['id']}"
        await self.rollouts.settle()
        return str(response.json()["id"])

    async def pending(self) -> list[dict[str, Any]]:
        return list((await self.victor.get("/api/v1/approvals")).json()["items"])

    async def phase(self, deployment: str) -> str:
        return str((await self.victor.get(f"{PATH}/{deployment}")).json()["deployment"]["phase"])


@pytest.fixture
async def fleet(database: Database) -> Fleet:
    fleet = Fleet(database)
    await fleet.rollouts.register()
    return fleet


async def test_a_deployment_is_planned_approved_and_carried_out(fleet: Fleet) -> None:
    deployment = await fleet.create()
    plan = (await fleet.victor.get(f"{PATH}/{deployment}/plan")).json()
    assert plan["digest"].startswith("sha256:")
    assert [each["clusterName"] for each in plan["plan"]["clusters"]] == ["prod-1", "prod-2"]
    assert await fleet.phase(deployment) == "AwaitingApproval"
    (approval,) = await fleet.pending()
    assert approval["digest"] == plan["digest"]
    path = f"/api/v1/approvals/{approval['id']}/approve"
    assert (await fleet.maria.post(path, {})).status_code == 403
    assert (await fleet.olga.post(path, {"comment": "go"})).json()["state"] == "Approved"
    assert (await fleet.olga.post(path, {})).status_code == 409
    await fleet.rollouts.run()
    assert await fleet.phase(deployment) == "Completed"
    history = (await fleet.victor.get(f"{PATH}/{deployment}/events")).json()
    assert history["lastSequence"] == history["items"][-1]["sequence"]
    rest = await fleet.victor.get(f"{PATH}/{deployment}/events", params={"after": history["lastSequence"]})
    assert rest.json()["items"] == []
    assert (await fleet.maria.delete(f"{PATH}/{deployment}")).status_code == 409


async def test_the_requester_and_the_owner_of_another_environment_cannot_decide(fleet: Fleet) -> None:
    await fleet.create()
    (approval,) = await fleet.pending()
    for who in (
        ApiClient(fleet.app, token("maria", "Admin")),
        ApiClient(fleet.app, token("otto", "EnvironmentOwner:Staging")),
    ):
        for verb in ("approve", "reject"):
            response = await who.post(f"/api/v1/approvals/{approval['id']}/{verb}", {})
            assert response.status_code == 403


async def test_a_rejected_deployment_never_runs(fleet: Fleet) -> None:
    deployment = await fleet.create()
    (approval,) = await fleet.pending()
    response = await fleet.olga.post(f"/api/v1/approvals/{approval['id']}/reject", {"comment": "not today"})
    assert response.status_code == 200
    await fleet.rollouts.run()
    assert await fleet.phase(deployment) == "Rejected"
    listed = await fleet.victor.get("/api/v1/approvals", params={"state": "Rejected"})
    assert [each["id"] for each in listed.json()["items"]] == [approval["id"]]


async def test_pause_resume_abort_and_roll_back(fleet: Fleet) -> None:
    deployment = await fleet.create()
    (approval,) = await fleet.pending()
    await fleet.olga.post(f"/api/v1/approvals/{approval['id']}/approve", {})
    await fleet.rollouts.settle()
    assert (await fleet.maria.post(f"{PATH}/{deployment}/pause")).json()["phase"] == "Paused"
    assert (await fleet.maria.post(f"{PATH}/{deployment}/pause")).status_code == 409
    assert (await fleet.maria.post(f"{PATH}/{deployment}/switch")).status_code == 409
    assert (await fleet.maria.post(f"{PATH}/{deployment}/resume")).status_code == 200
    assert (await fleet.victor.get(f"{PATH}/{deployment}/rollback-status")).status_code == 404
    assert (await fleet.maria.delete(f"{PATH}/{deployment}")).status_code == 200
    await fleet.rollouts.run()
    assert await fleet.phase(deployment) == "Aborted"
    assert (await fleet.maria.post(f"{PATH}/{deployment}/rollback", {"reason": "x"})).status_code == 403
    assert (await fleet.ada.post(f"{PATH}/{deployment}/rollback", {})).status_code == 400
    rolled = await fleet.ada.post(f"{PATH}/{deployment}/rollback", {"reason": "it leaks"})
    assert rolled.status_code == 202, rolled.text
    await fleet.rollouts.run()
    status = (await fleet.victor.get(f"{PATH}/{deployment}/rollback-status")).json()
    assert status["phase"] == "RolledBack"
    assert (await fleet.maria.post(f"{PATH}/{deployment}/retry", {})).status_code == 409


async def test_requests_that_cannot_work_name_the_field(fleet: Fleet) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"operator": "none"}, "/operator"),
        ({"version": "9.9.9"}, "/version"),
        ({"targets": {}}, "/targets"),
        ({"targets": {"clusters": ["none"]}}, "/targets/clusters"),
        ({"strategy": "Slow"}, "/strategy"),
        ({"canaryConfig": {"initialPercentage": 0}}, "/canaryConfig/initialPercentage"),
        ({"canaryConfig": {"evaluationPeriod": "5 minutes"}}, "/canaryConfig/evaluationPeriod"),
        ({"canaryConfig": {"admin": True}}, "/canaryConfig/admin"),
        ({"directConfig": {}}, "/directConfig"),
    ]
    for change, path in cases:
        response = await fleet.maria.post(f"{PATH}/plan", {**REQUEST, **change})
        assert response.status_code == 400, (change, response.text)
        assert response.json()["errors"][0]["path"] == path
    forced = await fleet.maria.post(f"{PATH}/plan", {**REQUEST, "forceReason": "now"})
    assert forced.status_code == 403
    preview = await fleet.ada.post(f"{PATH}/plan", REQUEST)
    assert preview.status_code == 200, preview.text
    assert (await fleet.victor.get(PATH)).json()["items"] == []


async def test_deployments_are_limited_to_ten_per_minute_listed_and_filtered(fleet: Fleet) -> None:
    deployment = await fleet.create()
    statuses = [(await fleet.maria.post(PATH, REQUEST)).status_code for _ in range(10)]
    assert statuses == [409] * 9 + [429]
    for query, expected in (
        ({}, [deployment]),
        ({"phase": "AwaitingApproval", "operator": "cert-manager"}, [deployment]),
        ({"phase": "Failed"}, []),
    ):
        listed = (await fleet.victor.get(PATH, params=query)).json()["items"]
        assert [each["id"] for each in listed] == expected
    assert (await fleet.victor.get(PATH, params={"phase": "Sleeping"})).status_code == 400
    assert (await fleet.victor.get(f"{PATH}/{uuid.uuid4()}")).status_code == 404
    assert (await fleet.victor.get(f"{PATH}/not-an-id")).status_code == 404


async def test_secret_values_of_a_deployment_are_never_shown(fleet: Fleet) -> None:
    deployment = await fleet.create(secretValues={"password": "planted-8d2c"})
    for path in ("", f"/{deployment}", f"/{deployment}/plan", f"/{deployment}/events"):
        assert "planted-8d2c" not in (await fleet.ada.get(f"{PATH}{path}")).text


async def test_a_preview_of_a_cluster_that_does_not_answer_is_a_conflict(database: Database) -> None:
    await RolloutHarness(database, "prod-1").register()
    database.set_clock(None)
    response = await ApiClient(application(database), token()).post(f"{PATH}/plan", REQUEST)
    assert response.status_code == 409
    assert "prod-1 does not answer" in response.json()["detail"]


async def test_a_manager_without_an_engine_accepts_no_deployments(database: Database) -> None:
    client = ApiClient(application(database, carries_out_rollouts=False), token())
    assert (await client.post(PATH, REQUEST)).status_code == 503


def _parsed(text: str) -> list[dict[str, Any]]:
    blocks = [
        dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        for block in text.split("\n\n")
    ]
    return [block for block in blocks if "id" in block]


async def test_a_stream_has_the_history_follows_live_and_ends_with_the_deployment(fleet: Fleet) -> None:
    deployment = await fleet.create()
    headers = {"Accept": "text/event-stream"}
    stream = asyncio.create_task(fleet.victor.get(f"{PATH}/{deployment}/events", headers=headers))
    await asyncio.sleep(0.1)
    assert not stream.done()
    await fleet.maria.delete(f"{PATH}/{deployment}")
    await fleet.rollouts.settle()
    response = await asyncio.wait_for(stream, 120)
    assert response.headers["content-type"].startswith("text/event-stream")
    events = _parsed(response.text)
    stored = (await fleet.victor.get(f"{PATH}/{deployment}/events")).json()["items"]
    assert [json.loads(event["data"]) for event in events] == stored
    assert response.text.rstrip().endswith("event: end\ndata: {}")
    resumed = await fleet.victor.get(
        f"{PATH}/{deployment}/events", headers={**headers, "Last-Event-ID": events[0]["id"]}
    )
    assert [event["id"] for event in _parsed(resumed.text)] == [event["id"] for event in events[1:]]
    malformed = await fleet.victor.get(
        f"{PATH}/{deployment}/events", headers={"Last-Event-ID": "x\ny".replace("\n", "")}
    )
    assert malformed.status_code == 400


async def test_a_caller_has_at_most_twenty_open_streams(fleet: Fleet) -> None:
    deployment = await fleet.create()
    path, headers = f"{PATH}/{deployment}/events", {"Accept": "text/event-stream"}
    streams = [asyncio.create_task(fleet.victor.get(path, headers=headers)) for _ in range(20)]
    await asyncio.sleep(0.2)
    refused = await fleet.victor.get(path, headers=headers)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
    other = asyncio.create_task(fleet.olga.get(path, headers=headers))
    await fleet.maria.delete(f"{PATH}/{deployment}")
    await fleet.rollouts.settle()
    for stream in (*streams, other):
        assert (await asyncio.wait_for(stream, 120)).status_code == 200
    assert (await fleet.victor.get(path, headers=headers)).status_code == 200


async def test_a_stream_ends_when_the_session_is_signed_out_or_the_token_expires(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = await fleet.create()
    fleet.rollouts.database.set_clock(None)
    path, headers = f"{PATH}/{deployment}/events", {"Accept": "text/event-stream"}
    browser = ApiClient(fleet.app)
    session = (await browser.post("/api/v1/session", {"token": token("maria", "Viewer")})).json()
    stream = asyncio.create_task(browser.get(path, headers=headers))
    await asyncio.sleep(0.1)
    assert not stream.done()
    await browser.delete("/api/v1/session", headers={"X-CSRF-Token": session["csrfToken"]})
    assert "event: end" not in (await asyncio.wait_for(stream, 120)).text

    clock = {"now": datetime.now(UTC).timestamp()}
    verifier: TokenVerifier = fleet.app.state.authenticator.tokens
    monkeypatch.setattr(verifier, "_now", lambda: clock["now"])
    stream = asyncio.create_task(fleet.victor.get(path, headers=headers))
    await asyncio.sleep(0.1)
    assert not stream.done()
    clock["now"] += 3600
    assert "event: end" not in (await asyncio.wait_for(stream, 120)).text


@pytest.mark.parametrize(
    ("header", "valid"),
    [
        (f"00-{0xABC:032x}-{0xDEF:016x}-01", True),
        (f"00-{0:032x}-{0xDEF:016x}-01", False),
        (f"01-{0xABC:032x}-{0xDEF:016x}-01-more", False),
        ("x" * 4000, False),
    ],
    ids=["valid", "zero", "other version", "long"],
)
async def test_a_deployment_keeps_the_trace_of_its_request_if_it_is_valid(
    database: Database, header: str, valid: bool
) -> None:
    fleet = Fleet(database)
    await fleet.rollouts.register()
    response = await fleet.maria.post(PATH, REQUEST, headers={"traceparent": header})
    assert response.status_code == 202, response.text
    assert response.json()["traceParent"] == (header if valid else "")
