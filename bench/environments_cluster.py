"""The cluster and servers of the environments benchmark, in their own process to measure CPU separately.

An embedded cluster with Projects, a git server with a branch for each environment, an image registry,
simulated builds and a server for all hosts: `python -m bench.environments_cluster DIRECTORY N`. For each line
on stdin it prints a line of JSON with the state of the environments and the requests of the operator.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from kapsa.adapters.testing.git_server import GitRepository, GitServer
from kapsa.adapters.testing.loopback_tls import loopback_tls
from kapsa.adapters.testing.registry_server import RegistryServer
from kapsa.devcluster import DevCluster, FaultPlan
from kapsa.environments.resources import KINDS, DomainPool, Environment, Project, Registry
from kapsa.environments.settings import Settings
from kapsa.environments.testing.sample_application import SAMPLE_APPLICATION
from kapsa.environments.testing.simulated_builds import SimulatedBuildPods, SimulatedBuilds
from kapsa.runtime import Client, Condition, custom_resource_definitions
from kapsa.runtime.testing import InProcessTransport

NODES = 20
"""Nodes with room for the pods of all previews: pods that do not fit are never Ready."""
BRANCHES = 50
"""The number of previews of a project."""


class ClusterProgress(msgspec.Struct, frozen=True):
    """The state of the environments, and the requests so far."""

    kubeconfig: str
    ingress_address: str
    ready: int
    environments: int
    unready: list[str]
    """The states of some environments that are not ready."""
    requests: dict[str, int]
    """Requests of the operator, by verb."""
    writes: dict[str, int]
    """Writes of the operator, by verb and resource."""


async def serve(directory: Path, n: int) -> None:
    faults = FaultPlan()
    async with contextlib.AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(DevCluster(faults=faults, nodes=NODES))
        client = await stack.enter_async_context(Client(InProcessTransport(cluster, client="bench")))
        git_directory = directory / "git"
        git_directory.mkdir()
        git = stack.enter_context(GitServer(git_directory))
        registry = stack.enter_context(RegistryServer())
        repositories = [repository(git, i, n) for i in range(-(-n // BRANCHES))]
        await install(client, registry, repositories)
        builder = SimulatedBuilds(
            client,
            SimulatedBuildPods(cluster.workloads, one_by_one=False),
            registry,
            lambda commit, path: "",
            namespace=Settings().build_namespace,
        )
        await stack.enter_async_context(builder.running())
        ingress_address = await serve_all_hosts(stack)
        lines = await standard_input()
        observer = Observer(client, faults)
        while await lines.readline():
            progress = await observer.observe(str(cluster.kubeconfig), ingress_address)
            sys.stdout.buffer.write(msgspec.json.encode(progress) + b"\n")
            sys.stdout.buffer.flush()


def repository(git: GitServer, number: int, n: int) -> GitRepository:
    """Create a repository with the sample application, and a commit on each branch."""
    made = git.repository(f"team/app-{number}")
    files = {
        str(file.relative_to(SAMPLE_APPLICATION)): file
        for file in SAMPLE_APPLICATION.rglob("*")
        if file.is_file()
    }
    made.commit({path: file.read_bytes() for path, file in files.items()}, message="Begin")
    branches = range(min(BRANCHES, n - number * BRANCHES))
    made.commit_to_new_branches(
        {f"branch-{branch}": {"index.html": f"branch {branch}"} for branch in branches}
    )
    return made


async def install(client: Client, registry: RegistryServer, repositories: list[GitRepository]) -> None:
    """Install the CRDs, what administrators set up, and the projects."""
    for manifest in custom_resource_definitions(KINDS):
        await client.apply(manifest, force=True)
    for namespace in (Settings().namespace, "team"):
        await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    await client.create(resource(DomainPool, "previews", {"baseDomains": ["preview.test"]}))
    endpoint = {"endpoint": registry.endpoint, "insecure": True}
    await client.create(resource(Registry, "local", endpoint))
    secret = {"name": "settings", "namespace": "team"}
    await client.create({"apiVersion": "v1", "kind": "Secret", "metadata": secret, "stringData": {"A": "1"}})
    for number, each in enumerate(repositories):
        spec = {
            "source": {"repositoryUrl": each.url, "pollInterval": "300s"},
            "build": {},
            "registry": {"name": "local", "imageRepository": f"team/app-{number}"},
            "deployment": {"type": "helm", "path": "chart"},
            "resources": {"defaultQuota": {"cpu": "4", "memory": "4Gi", "pods": 20}},
            "previewEnvironments": {"enabled": True, "maxActive": BRANCHES},
            "secrets": [{"name": "settings"}],
        }
        await client.create(resource(Project, f"app-{number}", spec, namespace="team"))


def resource(kind: Any, name: str, spec: dict[str, Any], **metadata: str) -> dict[str, Any]:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, **metadata},
        "spec": spec,
    }


async def serve_all_hosts(stack: contextlib.AsyncExitStack) -> str:
    """Start a server that responds for all hosts over TLS, in place of an ingress controller.

    Return its address.
    """

    async def answer(request: web.Request) -> web.Response:
        return web.Response(text="hello")

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    context, _ = loopback_tls("ingress controller of the benchmark")
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    return f"127.0.0.1:{runner.addresses[0][1]}"


async def standard_input() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    return reader


class _Name(msgspec.Struct, frozen=True):
    name: str


class _Status(msgspec.Struct, frozen=True):
    phase: str = ""
    conditions: list[Condition] = []


class _Environment(msgspec.Struct, frozen=True):
    """The part of an environment that shows its state.

    The observer shares the CPU with the operator, so it decodes little.
    """

    metadata: _Name
    status: _Status = _Status()

    def __str__(self) -> str:
        ready = [each for each in self.status.conditions if each.type == "Ready"]
        why = f"{ready[0].reason}: {ready[0].message}" if ready else "no condition"
        return f"{self.metadata.name} is {self.status.phase}, {why}"


class Observer:
    """Counts of the operator's requests, and of the environments that are ready."""

    def __init__(self, client: Client, faults: FaultPlan) -> None:
        self._client = client
        self._faults = faults
        self._counted = 0
        self._requests: Counter[str] = Counter()
        self._writes: Counter[str] = Counter()

    async def observe(self, kubeconfig: str, ingress_address: str) -> ClusterProgress:
        environments = (await self._client.list(str(Environment.gvk), into=_Environment)).items
        unready = [each for each in environments if each.status.phase != "Ready"]
        self._count()
        return ClusterProgress(
            kubeconfig=kubeconfig,
            ingress_address=ingress_address,
            ready=len(environments) - len(unready),
            environments=len(environments),
            unready=[str(each) for each in unready[:3]],
            requests=self._requests,
            writes=self._writes,
        )

    def _count(self) -> None:
        records = self._faults.records
        for record in records[self._counted :]:
            # At its start an operator checks its permissions by creating reviews, which are not stored.
            if record.client != "bench" and "reviews" not in record.resource:
                self._requests[record.verb] += 1
                if record.is_write:
                    self._writes[f"{record.verb} {record.resource}"] += 1
        self._counted = len(records)


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2])))
