"""Commands that change the course of a deployment, decide on it, or approve a CRD, against the real API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml
from sqlalchemy import text

from kapsa.fleet.infrastructure.postgres.database import Database
from tests.cli.fleet.terminal import Terminal
from tests.fleet.api.objects import FleetObjects, create_objects
from tests.fleet.charts import crd

Result = TypeVar("Result")
BLUE_GREEN = {"type": "BlueGreen", "blueNamespace": "blue", "greenNamespace": "green"}


def in_database(url: str, work: Callable[[Database], Awaitable[Result]]) -> Result:
    """Run work on the database of the manager."""

    async def run() -> Result:
        database = Database(url)
        try:
            return await work(database)
        finally:
            await database.close()

    return asyncio.run(run())


@pytest.fixture
def stored(manager: str, manager_database: str) -> FleetObjects:
    """Objects of Ada, and of somebody else, with deployments that await approval."""
    return in_database(manager_database, lambda database: create_objects(database, caller="ada"))


@pytest.fixture
def deployment(stored: FleetObjects, manager_database: str) -> Callable[..., str]:
    """Return Ada's deployment after a change of its stored fields: nothing carries deployments out here."""

    def change(phase: str, **fields: Any) -> str:
        async def write(database: Database) -> None:
            statement = text(
                "UPDATE fleet.deployment SET phase = :phase, document = document || cast(:fields AS jsonb)"
                " WHERE id = cast(:id AS uuid)"
            )
            given = {"phase": phase, "fields": json.dumps({"phase": phase, **fields})}
            async with database.transaction() as connection:
                await connection.execute(statement, {**given, "id": stored.own["deployments"]})

        in_database(manager_database, write)
        return stored.own["deployments"]

    return change


async def mark_changed(database: Database, deployment_id: str) -> None:
    """Store that a deployment has changed its clusters, from revision 3 of version 0.9.0."""
    statement = text(
        "UPDATE fleet.deployment_cluster SET document = document || cast(:fields AS jsonb)"
        " WHERE deployment_id = cast(:id AS uuid)"
    )
    fields = json.dumps({"baseRevision": 3, "baseVersion": "0.9.0", "revision": 4})
    async with database.transaction() as connection:
        await connection.execute(statement, {"fields": fields, "id": deployment_id})


def test_a_paused_deployment_is_resumed_once(ada: Terminal, deployment: Callable[..., str]) -> None:
    identifier = deployment("Paused", waitsFor="a person to resume, abort or roll back")
    assert ada.succeed("deployments", "resume", identifier[:8]) == (
        f"deployment {identifier[:8]} of own-operator 1.0.0 is Deploying\n"
    )
    assert "a deployment that is Deploying cannot be resumed" in ada.fail("deployments", "resume", identifier)
    paused = ada.succeed("deployments", "pause", identifier)
    assert "is Paused, waits for a person to resume, abort or roll back" in paused
    events = ada.succeed("deployments", "events", identifier)
    assert [line.split()[2] for line in events.splitlines()] == ["Resumed", "Paused"]


def test_a_failed_deployment_is_retried_and_its_new_requester_is_recorded(
    ada: Terminal, person: Callable[..., Terminal], deployment: Callable[..., str]
) -> None:
    identifier = deployment("Failed", message="it cannot be planned")
    assert "is Planning" in person("berta").succeed("deployments", "retry", identifier)
    described = ada.succeed("deployments", "describe", identifier)
    assert "attempt:      2" in described
    assert "requested by: ada, berta" in described
    line = ada.fail("deployments", "retry", identifier)
    assert "a deployment that is Planning has nothing to retry" in line


@pytest.mark.parametrize("phase", ["Completed", "Rejected", "RollingBack"])
def test_a_deployment_that_ended_for_good_is_not_retried_and_the_answer_has_the_remedy(
    phase: str, ada: Terminal, deployment: Callable[..., str]
) -> None:
    line = ada.fail("deployments", "retry", deployment(phase))
    assert f"was refused (409): a deployment that is {phase} cannot be retried: " in line


def test_only_a_blue_green_deployment_is_switched(ada: Terminal, deployment: Callable[..., str]) -> None:
    canary = deployment("Validating")
    assert "only a BlueGreen deployment can be switched" in ada.fail("deployments", "switch", canary)
    identifier = deployment("Validating", strategy=BLUE_GREEN)
    assert json.loads(ada.succeed("deployments", "switch", identifier, "-o", "json"))["switchRequested"]
    assert "switch requested (by ada)" in ada.succeed("deployments", "events", identifier)


def test_a_deployment_is_rolled_back_for_a_reason_and_its_rollback_has_a_status(
    ada: Terminal, person: Callable[..., Terminal], deployment: Callable[..., str], manager_database: str
) -> None:
    identifier = deployment("Validating")
    in_database(manager_database, lambda database: mark_changed(database, identifier))
    rollback = ("deployments", "rollback", identifier[:8], "--reason", "it is slow", "--yes")
    assert "was refused (403)" in person("vera", "Viewer").fail(*rollback)
    assert f"deployment {identifier[:8]} of own-operator 1.0.0 is RollingBack" in ada.succeed(*rollback)
    shown = ada.succeed("deployments", "rollback-status", identifier[:8])
    fields = dict(line.split(":", 1) for line in shown.splitlines() if ": " in line)
    assert fields["phase"].strip() == "RollingBack"
    assert fields["reason"].strip() == "it is slow"
    assert fields["finished"].strip() == "not yet"
    assert shown.splitlines()[-1].split()[::3] == ["own-cluster", "0.9.0"]
    status = json.loads(ada.succeed("deployments", "rollback-status", identifier, "-o", "json"))
    assert (status["deploymentId"], status["reason"]) == (identifier, "it is slow")


def test_deployments_are_listed_by_their_phase(ada: Terminal, deployment: Callable[..., str]) -> None:
    identifier = deployment("Paused")
    assert ada.succeed("deployments", "ls", "--phase", "paused", "-o", "name").split() == [identifier]
    assert ada.succeed("deployments", "ls", "--phase", "completed", "-o", "name") == ""


def test_the_reason_to_retry_is_recorded(ada: Terminal, deployment: Callable[..., str]) -> None:
    identifier = deployment("Failed")
    ada.succeed("deployments", "retry", identifier, "--force-reason", "the only fix")
    entries = ada.succeed("audit", "ls", "--action", "deployment.retry", "--object", identifier, "-o", "json")
    (entry,) = json.loads(entries)["items"]
    assert entry["payload"]["forceReason"] == "the only fix"
    other = ("audit", "ls", "--object", identifier, "--action", "deployment.pause", "-o", "json")
    assert json.loads(ada.succeed(*other))["items"] == []


def test_an_approval_is_shown_and_without_its_plan_it_says_that_it_cannot_be_used(
    ada: Terminal, stored: FleetObjects
) -> None:
    approval = stored.own["approvals"]
    shown = ada.run("approvals", "describe", approval[:8])
    fields = dict(line.split(":", 1) for line in shown.out.splitlines())
    assert shown.code == 0
    assert fields["id"].strip() == approval
    assert fields["deployment"].strip() == stored.own["deployments"]
    assert fields["state"].strip() == "Pending"
    assert fields["requested by"].strip() == "ada"
    assert "has another plan now: this approval cannot be used" in shown.err
    document = json.loads(ada.succeed("approvals", "describe", approval, "-o", "json"))
    assert (document["id"], document["plan"]) == (approval, None)


def test_a_plan_is_rejected_by_somebody_else_than_its_requester(
    ada: Terminal, person: Callable[..., Terminal], stored: FleetObjects
) -> None:
    approval, deployment = stored.own["approvals"], stored.own["deployments"]
    assert "nobody may decide on a deployment that they requested" in ada.fail(
        "approvals", "reject", approval
    )
    berta = person("berta")
    assert " is Rejected: ProductionDeployment in Production" in berta.succeed(
        "approvals", "reject", approval[:8], "-m", "not tonight"
    )
    described = ada.succeed("deployments", "describe", deployment)
    assert "rejected by berta: not tonight" in described
    assert ada.succeed("approvals", "ls", "--state", "rejected", "-o", "name").split() == [approval]
    assert "was refused (409)" in berta.fail("approvals", "approve", approval)


@pytest.mark.long
def test_a_crd_is_stored_and_its_breaking_change_approved_by_somebody_else_with_the_right_digest(
    ada: Terminal, person: Callable[..., Terminal], tmp_path: Path
) -> None:
    source = ("--repository", "https://charts.example.com", "--chart", "widget")
    ada.succeed("operators", "register", "shop", "-n", "widgets", *source)
    ada.succeed("operators", "add-version", "shop", "--version", "1.1.0")
    narrow = crd("gadgets")
    narrow["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["required"] = ["spec"]
    file = tmp_path / "crd.yaml"
    file.write_text(yaml.safe_dump(narrow))
    wide = yaml.safe_dump(crd("gadgets"))
    assert ada.succeed("crds", "store", "shop", "1.0.0", "-", stdin=wide) == (
        "gadgets.example.com is stored with shop 1.0.0\n"
    )
    ada.succeed("crds", "store", "shop", "1.1.0", str(file))
    change = ("gadgets.example.com", "--operator", "shop", "--from", "1.0.0", "--to", "1.1.0")
    digest = ada.succeed("crds", "validate", *change, "-o", "name").strip()
    line = ada.fail("crds", "approve", *change, "--digest", digest)
    assert "nobody may approve a CRD that they stored" in line
    berta = person("berta")
    assert "was refused (4" in berta.fail("crds", "approve", *change, "--digest", f"sha256:{'0' * 64}")
    approved = berta.succeed("crds", "approve", *change, "--digest", digest, "-m", "nobody leaves it out")
    assert approved == "gadgets.example.com 1.1.0 is approved by berta\n"
    described = ada.succeed("crds", "describe", "gadgets.example.com", "--operator", "shop")
    assert "approved: 1.1.0 by berta" in described
    assert ": nobody leaves it out" in described


def test_an_operator_that_is_not_registered_cannot_be_adopted(ada: Terminal, stored: FleetObjects) -> None:
    line = ada.fail("clusters", "adopt", stored.own["clusters"], "nothing", "--dry-run")
    assert "there is no operator 'nothing'" in line
