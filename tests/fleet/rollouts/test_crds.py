"""CRDs in a rollout on real clusters: they and their resources outlive whatever the chart does with them."""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from typing import Any

import pytest
import yaml

from kapsa.fleet.infrastructure.postgres.rollouts.store import PostgresRollouts
from kapsa.fleet.orchestrator.rollout.rollout_secrets import RolloutSecrets
from kapsa.fleet.settings import FleetSettings
from kapsa.fleet.testing.sample_chart import GROUP, gadget, gadget_crd
from kapsa.runtime import Client
from tests.eventually import eventually
from tests.fleet.infrastructure.health.webhook_server import WebhookServer, webhook_server
from tests.fleet.rollouts.live_fleet import CHART, NAMESPACE, SECONDS, LiveFleet, live_fleet, sample_chart

ONE = {"dev-1": "Dev"}
CRD = f"gadgets.{GROUP}"
DEFINITION = "apiextensions.k8s.io/v1/CustomResourceDefinition"

pytestmark = [pytest.mark.timeout(1200), pytest.mark.long]


async def roll_back(fleet: LiveFleet, deployment: str) -> Any:
    """Take a finished deployment back as an admin, and wait for the end."""
    await fleet.admin.post(f"/deployments/{deployment}/rollback", {"reason": "a test"})

    async def look() -> Any:
        return await fleet.details(deployment)

    def ended(details: Any) -> bool:
        return details["deployment"]["phase"] in ("RolledBack", "Failed")

    details = await eventually(look, ended, "the end of the rollback", seconds=SECONDS)
    assert details["deployment"]["phase"] == "RolledBack", await fleet.story(deployment)
    return details


async def schema_of(client: Client) -> Any:
    """Return what decides about the content of resources: identity and versions of the CRD."""
    live = await client.get(DEFINITION, CRD)
    assert "deletionTimestamp" not in live["metadata"]
    return live["metadata"]["uid"], live["spec"]["versions"]


async def test_a_crd_in_templates_and_its_100_resources_outlive_an_upgrade_without_it_a_rollback_and_an_uninstall(
    settings: FleetSettings,
) -> None:
    async with live_fleet(settings, ONE) as fleet:
        client = fleet.clients["dev-1"]
        await fleet.register_operator(
            sample_chart("1.0.0", crd_folder="templates"), sample_chart("2.0.0", crd_folder="")
        )
        first = await fleet.deploy("1.0.0", "Direct")
        await fleet.finish(first)
        await fleet.create_gadgets(100)
        before, schema = await fleet.content(), await schema_of(client)

        second = await fleet.deploy("2.0.0", "Direct")
        await fleet.finish(second)
        assert (await fleet.content(), await schema_of(client)) == (before, schema)

        await roll_back(fleet, second)
        assert await fleet.versions() == {"dev-1": "1.0.0"}
        assert (await fleet.content(), await schema_of(client)) == (before, schema)

        await roll_back(fleet, first)
        assert await fleet.versions() == {"dev-1": ""}
        records = await client.list("v1/Secret", namespace=NAMESPACE, label_selector={"owner": "helm"})
        assert records.items == []
        assert (await fleet.content(), await schema_of(client)) == (before, schema)


async def test_a_namespace_that_a_version_brought_and_its_resources_outlive_an_upgrade_and_an_uninstall(
    settings: FleetSettings,
) -> None:
    namespace = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: tenants\n"
    async with live_fleet(settings, ONE) as fleet:
        client = fleet.clients["dev-1"]
        await fleet.register_operator(
            sample_chart("1.0.0", files={"templates/namespace.yaml": namespace}), sample_chart("2.0.0")
        )
        first = await fleet.deploy("1.0.0", "Direct")
        await fleet.finish(first)
        for number in range(5):
            await client.create(gadget(f"tenant-{number}", "tenants", size=number))
        before = await fleet.content()

        second = await fleet.deploy("2.0.0", "Direct")
        await fleet.finish(second)
        plan = await fleet.admin.get(f"/deployments/{second}/plan")
        (notice,) = plan["plan"]["clusters"][0]["notices"]
        assert "no longer has the namespace tenants, which is kept" in notice
        assert await fleet.content() == before

        await roll_back(fleet, second)
        await roll_back(fleet, first)
        assert await fleet.versions() == {"dev-1": ""}
        live = await client.get("v1/Namespace", "tenants")
        assert "deletionTimestamp" not in live["metadata"]
        assert await fleet.content() == before


def converted_crd(server: WebhookServer) -> dict[str, Any]:
    """Return the CRD with a second version that is stored, and that has another name for a field."""
    crd = gadget_crd()
    (first,) = crd["spec"]["versions"]
    second = json.loads(json.dumps(first).replace('"size"', '"amount"')) | {"name": "v2"}
    crd["spec"] |= {"versions": [{**first, "storage": False}, second], "conversion": server.conversion()}
    return crd


@pytest.mark.parametrize("folder", ["crds", "templates"])
async def test_what_a_new_conversion_webhook_has_stored_can_be_read_in_both_versions_after_the_rollback(
    settings: FleetSettings, engine: str, folder: str
) -> None:
    async with webhook_server() as server, live_fleet(settings, ONE, engine=engine) as fleet:
        server.renames = {"size": "amount"}
        client, kind = fleet.clients["dev-1"], f"{GROUP}/v2/Gadget"
        await fleet.register_operator(
            sample_chart("1.0.0", crd_folder=folder),
            sample_chart("2.0.0", crd=converted_crd(server), crd_folder=folder),
        )
        await fleet.finish(await fleet.deploy("1.0.0", "Direct"))
        await fleet.create_gadgets(20)
        before = await fleet.content()
        second = await fleet.deploy("2.0.0", "Direct")
        await fleet.finish(second)
        for number in range(10):  # the same content, which is stored as v2 from now on
            patch = {"spec": {"amount": number}}
            await client.patch(kind, f"g-{number:03}", patch, namespace="default")
        live = await client.get(DEFINITION, CRD)
        assert live["status"]["storedVersions"] == ["v1", "v2"]

        details = await roll_back(fleet, second)
        server.converts = False
        assert details["clusters"][0]["message"] == "", details["clusters"]
        assert (await client.get(DEFINITION, CRD))["status"]["storedVersions"] == ["v1"]
        await eventually(fleet.content, lambda seen: seen == before, "the content of before")
        assert len((await client.list(kind)).items) == 20
        assert await fleet.versions() == {"dev-1": "1.0.0"}


async def test_a_breaking_change_of_a_crd_waits_for_an_approval_that_names_it(
    settings: FleetSettings,
) -> None:
    narrowed = gadget_crd(more={"owner": {"type": "string"}})
    narrowed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["required"] = ["owner"]
    async with live_fleet(settings, ONE) as fleet:
        await fleet.register_operator(sample_chart("1.0.0"), sample_chart("2.0.0", crd=narrowed))
        await fleet.finish(await fleet.deploy("1.0.0", "Direct"))
        await fleet.create_gadgets(60)
        deployment = await fleet.deploy("2.0.0", "Direct")
        await fleet.await_phase(deployment, "AwaitingApproval")
        plan = await fleet.admin.get(f"/deployments/{deployment}/plan")
        assert [each["kind"] for each in plan["requiredApprovals"]] == ["BreakingCrdChange"]
        assert "60" in json.dumps(plan["plan"]["clusters"][0]["verdicts"]), plan["plan"]["clusters"][0]
        (request,) = (await fleet.admin.get("/approvals"))["items"]
        status, refused = await fleet.admin.call(
            "POST", f"/approvals/{request['id']}/approve", {"comment": ""}
        )
        assert status == 403, refused
        before = await fleet.content()
        await fleet.finish(deployment)
        assert await fleet.versions() == {"dev-1": "2.0.0"}
        assert await fleet.content() == before


async def test_the_objects_of_a_chart_that_differs_at_each_render_are_those_that_were_approved(
    settings: FleetSettings,
) -> None:
    secret = (
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: '{{ .Release.Name }}-tls'\n"
        "stringData:\n  key: '{{ randAlphaNum 24 }}'\n"
    )
    async with live_fleet(settings, {"prod": "Production"}) as fleet:
        await fleet.register_operator(sample_chart("1.0.0", files={"templates/tls.yaml": secret}))
        deployment = await fleet.deploy("1.0.0", "Canary", {"percentages": [100], "evaluationPeriod": "PT0S"})
        details = await fleet.await_phase(deployment, "AwaitingApproval")
        approved = await manifest_of(fleet, deployment)
        plan = await fleet.admin.get(f"/deployments/{deployment}/plan")
        digest = plan["plan"]["clusters"][0]["manifestDigest"]
        assert digest == "sha256:" + hashlib.sha256(approved).hexdigest()
        await fleet.finish(deployment)
        client = fleet.clients["prod"]
        live = await client.get("v1/Secret", f"{CHART}-tls", namespace=NAMESPACE)
        keys = [
            each["stringData"]["key"]
            for each in yaml.safe_load_all(approved)
            if each and each["kind"] == "Secret"
        ]
        assert [base64.b64decode(live["data"]["key"]).decode()] == keys
        assert keys[0] not in json.dumps([plan, details])


async def manifest_of(fleet: LiveFleet, deployment: str) -> bytes:
    """Return the sealed manifest of a plan with one cluster."""
    services = fleet.server.services
    cluster = (await fleet.admin.get(f"/deployments/{deployment}/plan"))["plan"]["clusters"][0]["clusterId"]
    async with services.database.transaction() as connection:
        store = PostgresRollouts()
        sealed = await store.bundle(connection, uuid.UUID(deployment), uuid.UUID(cluster))
    assert sealed is not None
    secrets = RolloutSecrets(services.vault)
    return (await secrets.open_bundle(uuid.UUID(deployment), uuid.UUID(cluster), sealed)).manifest
