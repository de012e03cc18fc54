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
