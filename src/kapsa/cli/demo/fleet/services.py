"""The services of the fleet's demo: ten clusters with a simulated controller each, a chart repository, a manager."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from kapsa.adapters.testing.chart_server import ChartServer
from kapsa.cli.demo.progress_lines import ProgressLines
from kapsa.cli.fleet.client.manager_api import ManagerApi
from kapsa.devcluster import DevCluster
from kapsa.fleet.domain.principals import Principal, Role
from kapsa.fleet.infrastructure.local_keys import LocalKeys
from kapsa.fleet.server.lifecycle import FleetServer
from kapsa.fleet.settings import FleetSettings
from kapsa.fleet.testing.sample_chart import ControllerBehaviour, gadget_crd, sample_chart
from kapsa.fleet.testing.simulated_controller import SimulatedController, simulate_pods
from kapsa.runtime import Client

__all__ = ["ENVIRONMENTS", "VERSIONS", "FleetDemo", "start_fleet"]

ENVIRONMENTS = {
    **{f"dev-{number}": "Dev" for number in range(1, 6)},
    **{f"staging-{number}": "Staging" for number in range(1, 4)},
    **{f"prod-{region}": "Production" for region in ("eu", "us")},
}
"""Ten clusters, each with its environment."""
FIRST, BETTER, BAD = "1.0.0", "1.1.0", "2.0.0"
VERSIONS = (FIRST, BETTER, BAD)
"""The version that is installed, a better one, and one that crashes on every cluster but the first."""
_PEOPLE = ("ada", "berta", "carla")


class FleetDemo(msgspec.Struct, frozen=True, kw_only=True):
    """The services that are running."""

    manager: FleetServer
    repository: ChartServer
    clusters: dict[str, DevCluster]
    clients: dict[str, Client]
    people: dict[str, ManagerApi]
    tokens: dict[str, str]


@contextlib.asynccontextmanager
async def start_fleet(directory: Path, lines: ProgressLines) -> AsyncIterator[FleetDemo]:
    """Start all services, and stop them when the block ends."""
    async with contextlib.AsyncExitStack() as stack:
        clusters, clients = await _start_clusters(stack)
        lines.say(f"started {len(clusters)} Kubernetes control planes, each with an API server on loopback")
        repository = stack.enter_context(ChartServer())
        _publish(repository)
        lines.say(f"started a chart repository at {repository.url}")
        settings = FleetSettings(
            data_directory=directory / "fleet",
            listen_port=0,
            internal_addresses=True,
            plain_http_repositories=True,
            health_check_seconds=1,
        )
        manager = await stack.enter_async_context(FleetServer(settings))
        lines.say(f"started the fleet manager at {manager.http.url}, with a PostgreSQL of its own")
        tokens = {name: _token(settings, name) for name in _PEOPLE}
        people = {name: ManagerApi(manager.http.url, token) for name, token in tokens.items()}
        for each in people.values():
            stack.push_async_callback(each.close)
        yield FleetDemo(
            manager=manager,
            repository=repository,
            clusters=clusters,
            clients=clients,
            people=people,
            tokens=tokens,
        )


async def _start_clusters(
    stack: contextlib.AsyncExitStack,
) -> tuple[dict[str, DevCluster], dict[str, Client]]:
    clusters: dict[str, DevCluster] = {}
    clients: dict[str, Client] = {}
    for name in ENVIRONMENTS:
        cluster = await stack.enter_async_context(DevCluster(tls=True))
        if clusters:  # on the first cluster the bad version runs: a canary of one would not be enough
            simulate_pods(cluster.workloads)
        client = await stack.enter_async_context(Client.connect(kubeconfig=cluster.kubeconfig))
        await stack.enter_async_context(SimulatedController(client).running())
        clusters[name], clients[name] = cluster, client
    return clusters, clients


def _publish(repository: ChartServer) -> None:
    newer = gadget_crd(more={"finish": {"type": "string"}})
    repository.add(sample_chart(FIRST))
    repository.add(sample_chart(BETTER, crd=newer))
    repository.add(sample_chart(BAD, ControllerBehaviour.CRASHES, crd=newer))


def _token(settings: FleetSettings, name: str) -> str:
    principal = Principal(name, frozenset({Role.ADMIN}))
    lifetime = timedelta(hours=8)
    return LocalKeys(settings.directory).mint_token(
        principal, settings.jwt_audience, lifetime, datetime.now(UTC)
    )
