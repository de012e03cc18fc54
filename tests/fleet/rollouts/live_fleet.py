"""A whole fleet: a manager over HTTP, a chart repository, clusters of the engine under test, and simulated controllers."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from kapsa.adapters.testing.chart_server import ChartServer
from kapsa.devcluster import DevCluster
from kapsa.devcluster.faults.plan import FaultPlan
from kapsa.fleet.domain.principals import Role
from kapsa.fleet.server.lifecycle import FleetServer
from kapsa.fleet.settings import FleetSettings
from kapsa.fleet.testing.sample_chart import CHART, GADGET, gadget, sample_chart
from kapsa.fleet.testing.simulated_controller import SimulatedController, simulate_pods
from kapsa.runtime import Client
from tests.eventually import eventually
from tests.fleet.callers import Caller

NAMESPACE = "gadgets"
ENDS = frozenset({"Completed", "RolledBack", "Failed", "Aborted", "Rejected"})
CANARY = {"percentages": [10, 30, 100], "evaluationPeriod": "PT1S"}
ROLLING = {"validationPeriod": "PT0S", "pauseBetweenClusters": "PT0S"}
GREEN = {
    "blueNamespace": NAMESPACE,
    "greenNamespace": "gadgets-green",
    "validationPeriod": "PT0S",
    "monitoringPeriod": "PT0S",
}
SECONDS = 400
"""A limit that only a defect reaches, also on a machine with ten times the work that it can do."""


class LiveFleet:
    """A running manager with registered clusters, as the people see it who use its API."""

    def __init__(self, server: FleetServer, settings: FleetSettings, repository: ChartServer) -> None:
        self.server = server
        self.settings = settings
        self.repository = repository
        self.clusters: dict[str, DevCluster] = {}
        self.clients: dict[str, Client] = {}
        self._connect()

    def _connect(self) -> None:
        directory = self.settings.directory
        self.admin = Caller(self.server, directory, "ada", Role.ADMIN)
        self.approver = Caller(self.server, directory, "berta", Role.ADMIN)
        self.third = Caller(self.server, directory, "carla", Role.ADMIN)

    async def restart(self) -> None:
        """Stop the manager, and start another one on the same database."""
        await self.close()
        self.server = await FleetServer(self.settings).__aenter__()
        self._connect()

    async def close(self) -> None:
        """Stop the manager."""
        for caller in (self.admin, self.approver, self.third):
            await caller.http.aclose()
        await self.server.__aexit__(None, None, None)

    async def register_operator(self, *charts: bytes, **fields: Any) -> None:
        """Publish versions of the sample operator, and register each, the first with the operator."""
        for chart in charts:
            self.repository.add(chart)
        source = {"type": "http", "repository": self.repository.url, "chart": CHART}
        versions = [_version(chart) for chart in charts]
        body = {"name": CHART, "namespace": NAMESPACE, "source": source, "version": versions[0], **fields}
        await self.admin.post("/operators", body)
        for version in versions[1:]:
            await self.admin.post(f"/operators/{CHART}/versions", {"version": version})

    def request(
        self, version: str, strategy: str, config: Mapping[str, Any] | None = None, **fields: Any
    ) -> dict[str, Any]:
        """Return the request of a deployment to all clusters."""
        body: dict[str, Any] = {
            "operator": CHART,
            "version": version,
            "targets": {"clusters": list(self.clusters)},
            "strategy": strategy,
            **fields,
        }
        if config is not None:
            body[f"{strategy[0].lower()}{strategy[1:]}Config"] = dict(config)
        return body

    async def deploy(
        self, version: str, strategy: str, config: Mapping[str, Any] | None = None, **fields: Any
    ) -> str:
        """Request a deployment to all clusters. Return its id."""
        body = self.request(version, strategy, config, **fields)
        return str((await self.admin.post("/deployments", body))["id"])

    async def details(self, deployment_id: str) -> Any:
        """Return a deployment with its clusters."""
        return await self.admin.get(f"/deployments/{deployment_id}")

    async def states(self, deployment_id: str) -> dict[str, str]:
        """Return the state of each cluster."""
        return {each["cluster"]: each["state"] for each in (await self.details(deployment_id))["clusters"]}

    async def await_phase(self, deployment_id: str, *phases: str, seconds: float = SECONDS) -> Any:
        """Wait until a deployment is in one of these phases, and fail as soon as it ended in another."""

        async def look() -> Any:
            return await self.details(deployment_id)

        def reached(details: Any) -> bool:
            return details["deployment"]["phase"] in {*phases, *ENDS}

        details = await eventually(look, reached, f"a deployment that is {phases}", seconds=seconds)
        assert details["deployment"]["phase"] in phases, await self.story(deployment_id)
        return details

    async def finish(self, deployment_id: str, phase: str = "Completed", *, seconds: float = SECONDS) -> Any:
        """Approve what must be approved, and wait for the end."""
        details = await self.await_phase(deployment_id, "AwaitingApproval", phase, seconds=seconds)
        if details["deployment"]["phase"] == "AwaitingApproval":
            await self.approve(deployment_id)
            details = await self.await_phase(deployment_id, phase, seconds=seconds)
        return details

    async def approve(self, deployment_id: str) -> None:
        """Approve a plan as somebody else than its requester."""
        for each in (await self.approver.get("/approvals"))["items"]:
            if each["deploymentId"] == deployment_id:
                await self.approver.post(f"/approvals/{each['id']}/approve", {"comment": "read it"})

    async def story(self, deployment_id: str) -> str:
        """Return everything that explains how a deployment ended, for a failed test."""
        details = await self.details(deployment_id)
        history = await self.admin.get(f"/deployments/{deployment_id}/events")
        lines = [f"{each['cluster']:>8} {each['kind']} {each['message']}" for each in history["items"]]
        return "\n".join([str(details["deployment"]["message"]), *lines, str(details["clusters"])])

    async def versions(self) -> dict[str, str]:
        """Return the version that the controller's pod template has on each cluster; empty without a controller."""
        return {name: await version_on(client) for name, client in self.clients.items()}

    async def create_gadgets(self, count: int) -> None:
        """Create resources on every cluster."""
        for client in self.clients.values():
            for number in range(count):
                await client.create(gadget(f"g-{number:03}", "default", size=number, color="blue"))

    async def await_reconciled(self) -> None:
        """Wait until the controller has reported on every Gadget of every cluster that it is ready."""

        async def unready() -> list[str]:
            return [
                f"{cluster}/{each['metadata']['name']}"
                for cluster, client in self.clients.items()
                for each in (await client.list(GADGET)).items
                if not _is_ready(each)
            ]

        await eventually(unready, lambda names: not names, "Gadgets that are all ready", seconds=SECONDS)

    async def content(self) -> dict[str, str]:
        """Return a hash over the content of all Gadgets of each cluster: identity, labels, annotations, spec."""
        return {name: await _content(client) for name, client in self.clients.items()}


async def version_on(client: Client) -> str:
    """Return the version of the controller of the sample operator on a cluster."""
    listed = await client.list("apps/v1/Deployment", label_selector={"app.kubernetes.io/name": CHART})
    running = [each for each in listed.items if each["spec"]["replicas"]]
    labels = [each["spec"]["template"]["metadata"]["labels"] for each in running]
    return ",".join(each["app.kubernetes.io/version"] for each in labels)


async def _content(client: Client) -> str:
    kept = []
    async for page in client.pages(GADGET, limit=500):
        for each in page.items:
            metadata = {
                key: each["metadata"].get(key)
                for key in ("uid", "name", "namespace", "labels", "annotations")
            }
            kept.append({"metadata": metadata, "spec": each["spec"]})
    kept.sort(key=lambda each: str(each["metadata"]["name"]))
    return hashlib.sha256(msgspec.json.encode(kept, order="sorted")).hexdigest()


def _is_ready(each: Mapping[str, Any]) -> bool:
    conditions = (each.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _version(chart: bytes) -> str:
    from kapsa.adapters.helm.chart_archive import read_archive

    return read_archive(chart).metadata.version


@asynccontextmanager
async def live_fleet(
    settings: FleetSettings,
    environments: Mapping[str, str],
    *,
    engine: str = "embedded",
    faults: Mapping[str, FaultPlan] | None = None,
    prepare: Callable[[Client], Awaitable[None]] | None = None,
) -> AsyncIterator[LiveFleet]:
    """Start a manager and clusters by name, each in its environment, and register them over the API.

    `prepare` is called with a client of each cluster before it is registered.
    """
    async with AsyncExitStack() as stack:
        repository = stack.enter_context(ChartServer())
        server = await stack.enter_async_context(FleetServer(settings))
        fleet = LiveFleet(server, settings, repository)
        stack.push_async_callback(fleet.close)
        callers = (fleet.admin, fleet.approver, fleet.third)  # five clusters a minute for each
        for number, (name, environment) in enumerate(environments.items()):
            cluster = DevCluster(engine, tls=True, faults=(faults or {}).get(name))  # type: ignore[arg-type]
            await stack.enter_async_context(cluster)
            if engine == "embedded":
                simulate_pods(cluster.workloads)
            client = await stack.enter_async_context(Client.connect(kubeconfig=cluster.kubeconfig))
            await stack.enter_async_context(
                SimulatedController(client, every=0.3, crashes=engine == "real").running()
            )
            fleet.clusters[name], fleet.clients[name] = cluster, client
            if prepare is not None:
                await prepare(client)
            kubeconfig = Path(cluster.kubeconfig).read_text()
            body = {"name": name, "environment": environment, "kubeconfig": kubeconfig}
            await callers[number % 3].post("/clusters", body)
        yield fleet


__all__ = ["CANARY", "CHART", "GREEN", "ROLLING", "LiveFleet", "live_fleet", "sample_chart", "version_on"]
