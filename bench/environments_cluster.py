"""The world around the environments operator in a process of its own, so that its CPU can be told from the operator's.

An embedded cluster with Projects, a git server with a branch for each environment, an image registry, the pods of builds and
something that answers for every host: `python -m bench.environments_cluster DIRECTORY N`. Each line on standard input asks for a
line of JSON on standard output that says how far the environments are and what the operator has asked for.
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

from kapsa.adapters.testing import GitRepository, GitServer, RegistryServer
from kapsa.adapters.testing.loopback_tls import loopback_tls
from kapsa.devcluster import DevCluster, FaultPlan
from kapsa.environments.resources import KINDS, DomainPool, Environment, Project, Registry
from kapsa.environments.settings import Settings
from kapsa.environments.testing import SAMPLE_APPLICATION
from kapsa.environments.testing.simulated_builds import SimulatedBuildPods, SimulatedBuilds
from kapsa.runtime import Client, Condition, custom_resource_definitions
from kapsa.runtime.testing import InProcessTransport

BRANCHES = 50
"""How many previews a project has."""


class Progress(msgspec.Struct, frozen=True):
    """How far everything is."""

    kubeconfig: str
    answers_at: str
    ready: int
    environments: int
    unready: list[str]
    """What some of those that are not ready say."""
    requests: dict[str, int]
    """What the operator has asked for, by verb."""
    writes: dict[str, int]
    """What it wrote, by verb and resource."""


async def serve(directory: Path, n: int) -> None:
    faults = FaultPlan()
    async with contextlib.AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(DevCluster(faults=faults))
        client = await stack.enter_async_context(Client(InProcessTransport(cluster, client="world")))
        git_directory = directory / "git"
        git_directory.mkdir()
        git = stack.enter_context(GitServer(git_directory))
        registry = stack.enter_context(RegistryServer())
        repositories = [repository(git, i, n) for i in range(-(-n // BRANCHES))]
        await furnish(client, registry, repositories)
        builder = SimulatedBuilds(
            client,
            SimulatedBuildPods(cluster.workloads, one_by_one=False),
            registry,
            lambda commit, path: "",
            namespace=Settings().build_namespace,
        )
        await stack.enter_async_context(builder.running())
        answers_at = await answer_for_hosts(stack)
        lines = await standard_input()
        observer = Observer(client, faults)
        while await lines.readline():
            told = await observer.look(str(cluster.kubeconfig), answers_at)
            sys.stdout.buffer.write(msgspec.json.encode(told) + b"\n")
            sys.stdout.buffer.flush()


def repository(git: GitServer, number: int, n: int) -> GitRepository:
    """The demo's application, with a commit of its own on each branch."""
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


async def furnish(client: Client, registry: RegistryServer, repositories: list[GitRepository]) -> None:
    """The kinds, what administrators set up, and the projects."""
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
            "previewEnvironments": {"enabled": True},
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


async def answer_for_hosts(stack: contextlib.AsyncExitStack) -> str:
    """What an ingress controller would be: every host is answered, over TLS."""

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
    """As much of an environment as tells how far it is: the observer shares its cores with the observed."""

    metadata: _Name
    status: _Status = _Status()

    def __str__(self) -> str:
        ready = [each for each in self.status.conditions if each.type == "Ready"]
        why = f"{ready[0].reason}: {ready[0].message}" if ready else "nothing"
        return f"{self.metadata.name} is {self.status.phase}, {why}"


class Observer:
    """Counts what the operator asks for, and the environments that are ready."""

    def __init__(self, client: Client, faults: FaultPlan) -> None:
        self._client = client
        self._faults = faults
        self._counted = 0
        self._requests: Counter[str] = Counter()
        self._writes: Counter[str] = Counter()

    async def look(self, kubeconfig: str, answers_at: str) -> Progress:
        environments = (await self._client.list(str(Environment.gvk), into=_Environment)).items
        unready = [each for each in environments if each.status.phase != "Ready"]
        self._count()
        return Progress(
            kubeconfig=kubeconfig,
            answers_at=answers_at,
            ready=len(environments) - len(unready),
            environments=len(environments),
            unready=[str(each) for each in unready[:3]],
            requests=self._requests,
            writes=self._writes,
        )

    def _count(self) -> None:
        records = self._faults.records
        for record in records[self._counted :]:
            # Whoever starts asks what it may do, by creating reviews that nobody keeps.
            if record.client != "world" and "reviews" not in record.resource:
                self._requests[record.verb] += 1
                if record.is_write:
                    self._writes[f"{record.verb} {record.resource}"] += 1
        self._counted = len(records)


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2])))
