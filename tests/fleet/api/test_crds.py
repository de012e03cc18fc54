"""CRDs and the health of operators over HTTP."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from sqlalchemy import text

from kapsa.fleet.domain.health import CheckKind, Evidence, HealthCheck, OperatorHealth
from kapsa.fleet.infrastructure.postgres.database import Database
from tests.fleet.api.harness import WIDGET, ApiClient
from tests.fleet.api.objects import create_objects
from tests.fleet.charts import crd

PATH = "/api/v1/crds"
NAME = "gadgets.example.com"


def _narrowed(definition: dict[str, Any]) -> dict[str, Any]:
    changed = copy.deepcopy(definition)
    schema = changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["size"]["maximum"] = 5
    return changed


@pytest.fixture
async def stored(api: ApiClient) -> ApiClient:
    """An operator in two versions, the second with a breaking change of a CRD."""
    await api.post("/api/v1/operators", WIDGET)
    await api.post("/api/v1/operators/widget/versions", {"version": "1.1.0"})
    for version, definition in (("1.0.0", crd("gadgets")), ("1.1.0", _narrowed(crd("gadgets")))):
        body = {"operator": "widget", "version": version, "definition": definition}
        response = await api.post(PATH, body)
        assert response.status_code == 201, response.text
    return api


async def test_crds_are_stored_listed_and_shown(stored: ApiClient) -> None:
    viewer = stored.as_user("victor", "Viewer")
    listed = (await viewer.get(PATH, params={"operator": "widget"})).json()["items"]
    assert {each["name"] for each in listed} == {NAME, "widgets.example.com"}
    assert [each["name"] for each in (await viewer.get(PATH, params={"prefix": "gad"})).json()["items"]] == [
        NAME
    ]
    shown = (await viewer.get(f"{PATH}/{NAME}")).json()
    assert [each["version"] for each in shown["revisions"]] == ["1.1.0", "1.0.0"]
    assert (await viewer.get(f"{PATH}/nones.example.com")).status_code == 404
    assert (await viewer.get(f"{PATH}/nodots")).status_code == 400


async def test_a_breaking_change_is_found_and_approved_by_another_admin(stored: ApiClient) -> None:
    validation = (await stored.post(f"{PATH}/{NAME}/validate", {"operator": "widget"})).json()
    assert validation["severity"] == "breaking"
    body = {"operator": "widget", "version": "1.1.0", "digest": validation["digest"]}
    own = await stored.post(f"{PATH}/{NAME}/approve", body)
    assert own.status_code == 403
    other = stored.as_user("grace", "Admin")
    stale = await other.post(f"{PATH}/{NAME}/approve", {**body, "digest": "sha256:other"})
    assert stale.status_code == 409
    assert (await other.post(f"{PATH}/{NAME}/approve", body)).json()["approvedBy"] == "grace"


async def test_a_malformed_crd_is_refused_with_the_path(stored: ApiClient) -> None:
    broken = crd("gadgets")
    broken["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["type"] = "nonsense"
    response = await stored.post(PATH, {"operator": "widget", "version": "1.1.0", "definition": broken})
    assert response.status_code == 400
    assert response.json()["errors"][0]["path"].startswith("/definition/spec/versions/0/schema")


_UNHEALTHY = OperatorHealth(
    2,
    "sha256:own",
    (
        HealthCheck(CheckKind.PODS, Evidence.FAILING, "CrashLoopBackOff", "pod a crashes", conclusive=True),
        HealthCheck(CheckKind.WEBHOOKS, Evidence.HEALTHY, "Passed", ""),
    ),
    controller_pods=1,
)


async def test_the_health_of_an_operator_has_the_shape_of_the_seed(
    api: ApiClient, database: Database
) -> None:
    await create_objects(database, caller="ada")
    async with database.transaction() as connection:
        await connection.execute(text("DELETE FROM fleet.installation"))
    path = "/api/v1/operators/own-operator/health"
    assert (await api.get(path)).json() == {
        "operatorName": "own-operator",
        "overallHealth": "Unknown",
        "clusters": [],
    }
    on_cluster = "/api/v1/clusters/own-cluster/operators/own-operator/health"
    assert (await api.get(on_cluster)).status_code == 404
    async with database.transaction() as connection:
        await connection.execute(
            text(
                "INSERT INTO fleet.installation (cluster_id, operator_id, release_name, namespace, revision, version,"
                " chart_digest) SELECT c.id, o.id, o.name, o.namespace, 2, '1.0.0', 'sha256:own'"
                " FROM fleet.cluster c, fleet.operator o WHERE c.name = 'own-cluster' AND o.name = 'own-operator'"
            )
        )
    entry = (await api.get(on_cluster)).json()
    assert (entry["clusterName"], entry["health"], entry["reason"]) == (
        "own-cluster",
        "Unknown",
        "NotChecked",
    )
    async with database.transaction() as connection:
        await connection.execute(
            text(
                "INSERT INTO fleet.release_reading (cluster_id, namespace, release, health, memory, checked_at)"
                " SELECT cluster_id, namespace, release_name, CAST(:health AS jsonb), '{}', fleet.now()"
                " FROM fleet.installation"
            ),
            {"health": msgspec.json.encode(_UNHEALTHY).decode()},
        )
    report = (await api.get(path)).json()
    assert report["overallHealth"] == "Unhealthy"
    shown = report["clusters"][0]
    assert (shown["reason"], shown["controllerPods"]) == ("CrashLoopBackOff", 1)
    assert (shown["webhookStatus"], shown["crdReconciliation"]) == ("Available", "None")
    assert [check["kind"] for check in shown["checks"]] == ["Pods", "Webhooks"]
    assert shown["lastChecked"] is not None
    async with database.transaction() as connection:
        await connection.execute(
            text("UPDATE fleet.release_reading SET checked_at = checked_at - interval '4 minutes'")
        )
    stale = (await api.get(on_cluster)).json()
    assert (stale["health"], stale["reason"], stale["controllerPods"]) == ("Unknown", "Stale", None)
    async with database.transaction() as connection:
        await connection.execute(text("UPDATE fleet.installation SET revision = 3"))
    assert (await api.get(on_cluster)).json()["reason"] == "OtherRevision"
    assert (await api.get("/api/v1/clusters/none/operators/own-operator/health")).status_code == 404
    assert (await api.get("/api/v1/operators/none/health")).status_code == 404
