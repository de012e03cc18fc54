"""Rollouts under the rights that `kapsa fleet role` prints, and no others: a forbidden request fails the test."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from kapsa.adapters.process.tools import find_tool
from kapsa.devcluster import DevCluster
from kapsa.fleet.infrastructure.clusters.manager_role import manager_role
from kapsa.fleet.settings import FleetSettings
from kapsa.fleet.testing.sample_chart import GROUP, ControllerBehaviour, gadget_crd
from kapsa.runtime import Client, HttpTransport
from tests.eventually import eventually
from tests.fleet.infrastructure.health.webhook_server import webhook_server
from tests.fleet.rollouts.live_fleet import CHART, NAMESPACE, LiveFleet, live_fleet, sample_chart
from tests.fleet.rollouts.test_crds import CRD, DEFINITION, converted_crd, roll_back
from tests.fleet.rollouts.test_strategies import install_and_roll

ROLE = "fleet-of-gadgets"
ARCHIVE = "chart.tgz"
TWO = {"dev-1": "Dev", "staging-1": "Staging"}
HALVES = {"percentages": [50, 100], "evaluationPeriod": "PT1S"}
BINDING = "rbac.authorization.k8s.io/v1/ClusterRoleBinding"
LARGER = gadget_crd(more={"finish": {"type": "string"}})
CRON_JOB = """
apiVersion: batch/v1
kind: CronJob
metadata: {name: "{{ .Release.Name }}"}
spec:
  schedule: "0 0 * * *"
  jobTemplate:
    spec:
      template:
        spec: {restartPolicy: Never, containers: [{name: main, image: example.com/app}]}
"""

pytestmark = [pytest.mark.timeout(1200), pytest.mark.long]


@pytest.fixture
def forbidden(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Requests of the manager, and of its Helm behind the gate, that a cluster has answered with 403."""
    seen: list[str] = []
    send, open_stream = HttpTransport.request, HttpTransport.stream

    async def request(self: HttpTransport, method: str, path: str, **options: Any) -> Any:
        response = await send(self, method, path, **options)
        if response.status == 403:
            seen.append(f"{method} {path}: {response.body[:300]!r}")
        return response

    @asynccontextmanager
    async def stream(self: HttpTransport, method: str, path: str, **options: Any) -> AsyncIterator[Any]:
        async with open_stream(self, method, path, **options) as response:
            if response.status == 403:
                seen.append(f"{method} {path}, a stream")
            yield response

    monkeypatch.setattr(HttpTransport, "request", request)
    monkeypatch.setattr(HttpTransport, "stream", stream)
    yield seen
    assert seen == []


async def helm(directory: Path, *arguments: str, cluster: DevCluster | None = None) -> bytes:
    """Run the real Helm as an administrator of a cluster. Return its output."""
    environment = {**os.environ, "HOME": str(directory)}
    if cluster is not None:
        environment["KUBECONFIG"] = str(cluster.kubeconfig)
    process = await asyncio.create_subprocess_exec(
        find_tool("helm").path, *arguments, env=environment, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, arguments
    return output


async def role_for(directory: Path, chart: Path) -> dict[str, Any]:
    """Return the role for what `helm template --include-crds` prints of a chart."""
    output = await helm(directory, "template", CHART, str(chart), "--include-crds", "-n", NAMESPACE)
    return manager_role(ROLE, [each for each in yaml.safe_load_all(output) if each])


@asynccontextmanager
async def limited_fleet(
    settings: FleetSettings, directory: Path, environments: Mapping[str, str], *, engine: str = "embedded"
) -> AsyncIterator[LiveFleet]:
    """Start a fleet whose clusters have the role for the chart, written to `directory`, and bind the manager to it."""
    chart = directory / ARCHIVE
    chart.write_bytes(sample_chart("1.0.0"))
    role = await role_for(directory, chart)

    async def grant(client: Client) -> None:
        await client.create(role)

    limited = msgspec.structs.replace(settings, cluster_role=ROLE)
    async with live_fleet(limited, environments, engine=engine, prepare=grant) as fleet:
        yield fleet


async def adopt(fleet: LiveFleet, directory: Path, name: str) -> None:
    """Install the chart on a cluster as a person does, and adopt the release."""
    chart = str(directory / ARCHIVE)
    install = ("upgrade", "--install", CHART, chart, "-n", NAMESPACE, "--create-namespace")
    await helm(directory, *install, cluster=fleet.clusters[name])
    plan = await fleet.admin.post(f"/clusters/{name}/adopt", {"operator": CHART})
    assert (plan["adopted"], plan["version"]) == (True, "1.0.0"), plan


async def bindings(client: Client) -> dict[str, str]:
    """Return the roles of the accounts of managers in a cluster."""
    return {
        each["metadata"]["name"]: each["roleRef"]["name"]
        for each in (await client.list(BINDING)).items
        if each["metadata"]["name"].startswith("kapsa-fleet-")
        and not each["metadata"]["name"].endswith("-self")
    }


async def bound_to_the_role(fleet: LiveFleet) -> None:
    """Check the role of each account, and wait until its rights hold, those that were granted last included."""
    for client in fleet.clients.values():
        ((account, role),) = (await bindings(client)).items()
        assert role == ROLE

        async def may_withdraw(client: Client = client, account: str = account) -> bool:
            return await may(client, account, "rbac.authorization.k8s.io", "clusterrolebindings", account)

        async def may_list_nodes(client: Client = client, account: str = account) -> bool:
            return await may(client, account, "", "nodes", "", verb="list")

        await eventually(may_withdraw, bool, "the right to withdraw", seconds=300)
        await eventually(may_list_nodes, bool, "the rights of the role", seconds=300)


async def await_rights(fleet: LiveFleet, engine: str, forbidden: list[str]) -> None:
    """Wait until the role holds on all clusters, and forget what was forbidden before."""
    await bound_to_the_role(fleet)
    if engine == "real":
        forbidden.clear()  # kube-apiserver learns of a new binding a bit later


async def may(
    client: Client, account: str, group: str, resource: str, name: str, *, verb: str = "delete"
) -> bool:
    """Return whether the account of a manager has a right."""
    attributes = {"group": group, "resource": resource, "name": name, "verb": verb}
    user = f"system:serviceaccount:kapsa-fleet:{account}"
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": attributes},
    }
    return bool((await client.create(review))["status"]["allowed"])


async def test_adoption_canary_crd_change_rollback_and_deletion_need_no_right_beyond_the_role(
    settings: FleetSettings, engine: str, forbidden: list[str], tmp_path: Path
) -> None:
    async with limited_fleet(settings, tmp_path, TWO, engine=engine) as fleet:
        await fleet.register_operator(
            sample_chart("1.0.0"),
            sample_chart("2.0.0", crd=LARGER),
            sample_chart("3.0.0", ControllerBehaviour.CRASHES, crd=LARGER),
        )
        await await_rights(fleet, engine, forbidden)
        for name in TWO:
            await fleet.admin.get(f"/clusters/{name}/releases?refresh=true")
        await adopt(fleet, tmp_path, "dev-1")
        assert forbidden == []

        done = await fleet.finish(await fleet.deploy("2.0.0", "Canary", HALVES))
        assert {each["state"] for each in done["clusters"]} == {"Healthy"}
        assert await fleet.versions() == dict.fromkeys(TWO, "2.0.0")
        assert forbidden == []

        await fleet.create_gadgets(5)
        await fleet.await_reconciled()
        before = await fleet.content()
        await fleet.finish(await fleet.deploy("3.0.0", "Canary", HALVES), "RolledBack")
        assert await fleet.versions() == dict.fromkeys(TWO, "2.0.0")
        assert await fleet.content() == before
        assert forbidden == []

        status, answer = await fleet.admin.call("DELETE", "/clusters/dev-1")
        assert status < 300, answer
        assert answer["notices"] == [], answer
        assert await bindings(fleet.clients["dev-1"]) == {}


async def test_a_first_install_a_rolling_upgrade_and_blue_green_need_no_right_beyond_the_role(
    settings: FleetSettings, engine: str, forbidden: list[str], tmp_path: Path
) -> None:
    async with limited_fleet(settings, tmp_path, {"dev-1": "Dev"}, engine=engine) as fleet:
        await await_rights(fleet, engine, forbidden)
        await install_and_roll(fleet, ["dev-1"])
        assert forbidden == []


async def test_taking_a_field_from_somebody_else_needs_no_right_beyond_the_role(
    settings: FleetSettings, engine: str, forbidden: list[str], tmp_path: Path
) -> None:
    async with limited_fleet(settings, tmp_path, {"dev-1": "Dev"}, engine=engine) as fleet:
        await await_rights(fleet, engine, forbidden)
        await fleet.register_operator(sample_chart("1.0.0"), sample_chart("2.0.0"))
        await fleet.finish(await fleet.deploy("1.0.0", "Direct"))
        client = fleet.clients["dev-1"]
        changed = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": CHART, "namespace": NAMESPACE},
            "data": {"logLevel": "debug"},
        }
        await client.apply(changed, force=True, field_manager="a-person")
        refused = await fleet.finish(await fleet.deploy("2.0.0", "Direct"), "Failed")
        assert "a-person" in str(refused), refused
        await fleet.finish(await fleet.deploy("2.0.0", "Direct", onConflict="take"))
        taken = await client.get("v1/ConfigMap", CHART, namespace=NAMESPACE)
        assert taken["data"]["logLevel"] == "info"
        assert await fleet.versions() == {"dev-1": "2.0.0"}
        assert forbidden == []


async def test_a_conversion_and_the_way_back_with_what_it_has_stored_need_no_right_beyond_the_role(
    settings: FleetSettings, engine: str, forbidden: list[str], tmp_path: Path
) -> None:
    one = {"dev-1": "Dev"}
    async with webhook_server() as server, limited_fleet(settings, tmp_path, one, engine=engine) as fleet:
        server.renames = {"size": "amount"}
        await await_rights(fleet, engine, forbidden)
        await fleet.register_operator(sample_chart("1.0.0"), sample_chart("2.0.0", crd=converted_crd(server)))
        await fleet.finish(await fleet.deploy("1.0.0", "Direct"))
        await fleet.create_gadgets(5)
        before = await fleet.content()
        second = await fleet.deploy("2.0.0", "Direct")
        await fleet.finish(second)
        client = fleet.clients["dev-1"]
        await client.patch(f"{GROUP}/v2/Gadget", "g-000", {"spec": {"amount": 0}}, namespace="default")
        assert (await client.get(DEFINITION, CRD))["status"]["storedVersions"] == ["v1", "v2"]

        await roll_back(fleet, second)
        assert (await client.get(DEFINITION, CRD))["status"]["storedVersions"] == ["v1"]
        await eventually(fleet.content, lambda seen: seen == before, "the content of before")
        assert forbidden == []


async def test_a_chart_that_needs_more_than_the_role_is_refused_by_its_plan_before_anything_is_changed(
    settings: FleetSettings, forbidden: list[str], tmp_path: Path
) -> None:
    async with limited_fleet(settings, tmp_path, {"dev-1": "Dev"}) as fleet:
        await fleet.register_operator(sample_chart("1.0.0", files={"templates/job.yaml": CRON_JOB}))
        ended = await fleet.finish(await fleet.deploy("1.0.0", "Direct"), "Failed")
        assert "the account of this manager lacks" in str(ended), ended
        assert "cronjobs" in str(ended), ended
        assert await fleet.versions() == {"dev-1": ""}
        forbidden.clear()  # the trial of the object that is refused


async def test_a_cluster_without_the_role_is_not_registered_and_the_answer_says_what_to_do(
    settings: FleetSettings,
) -> None:
    limited = msgspec.structs.replace(settings, cluster_role=ROLE)
    with pytest.raises(AssertionError, match=f"no ClusterRole {ROLE}"):
        async with live_fleet(limited, {"dev-1": "Dev"}):
            pass
