"""Control planes to measure on: bare API servers with the Sample kind, and what they hold when a peer starts."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from bench.peer_programs import SAMPLES, Bench, go_program
from bench.processes import running
from kapsa.devcluster.real.control_plane import RealControlPlane
from kapsa.runtime import Bookmark, Client, ClientError, WatchOptions

SAMPLE_CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "samples.bench.kapsa.dev"},
    "spec": {
        "group": "bench.kapsa.dev",
        "scope": "Namespaced",
        "names": {"plural": "samples", "singular": "sample", "kind": "Sample", "listKind": "SampleList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "properties": {"value": {"type": "integer"}}},
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
            }
        ],
    },
}

ACCOUNT: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "ServiceAccount",
    "metadata": {"name": "operator", "namespace": "default"},
}
ACCOUNT_RIGHTS: dict[str, Any] = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "operator"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [{"kind": "ServiceAccount", "name": "operator", "namespace": "default"}],
}

Fill = Callable[[Bench], Awaitable[None]]


class Store(msgspec.Struct, frozen=True):
    """What a control plane holds before anything is measured."""

    name: str
    fill: Fill
    """Puts it there."""
    after: Store | None = None
    """What must be there before."""

    async def furnish(self, bench: Bench) -> None:
        if self.after is not None:
            await self.after.furnish(bench)
        await self.fill(bench)


async def define_samples(bench: Bench) -> None:
    for body in (SAMPLE_CRD, ACCOUNT, ACCOUNT_RIGHTS):
        await bench.client.create(body)
    await until_served(bench.client)


KIND = Store("kind", define_samples)
"""The Sample kind and the account that operators run under."""


def samples(n: int) -> Store:
    """sample-0 to sample-(n-1), none of them done."""
    return Store(f"{n}-samples", lambda bench: bench.create_samples(n), after=KIND)


@contextlib.asynccontextmanager
async def control_plane(engine: str, directory: Path, store: Store = KIND) -> AsyncIterator[Bench]:
    """A fresh API server without controllers that holds what the store says."""
    if engine == "embedded":
        async with (
            embedded_plane(directory) as (kubeconfig, pids),
            connected(kubeconfig, pids, directory) as bench,
        ):
            await store.furnish(bench)
            yield bench
        return
    async with real_plane(await kept(store, directory)) as plane, connected_to(plane, directory) as bench:
        await until_served(bench.client)
        yield msgspec.structs.replace(bench, kubeconfig=await account_kubeconfig(bench))


async def account_kubeconfig(bench: Bench) -> Path:
    """For whoever is measured: with the token of a service account, as operators have it in their Pods.

    The administrator's certificate would not do: its signature is verified at each request (NOTES.md).
    """
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = await bench.client.create_subresource(
        "v1/ServiceAccount", ACCOUNT["metadata"]["name"], "token", request, namespace="default"
    )
    config = yaml.safe_load(bench.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": answer["status"]["token"]}
    path = bench.directory / "operator.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


async def kept(store: Store, directory: Path) -> Path:
    """The store's data, filled the first time that it is asked for.

    A real control plane starts on a copy: making thousands of samples anew for each peer would take longer than most of
    what is measured.
    """
    path = directory / f"store-{store.name}"
    if not path.exists():
        before = await kept(store.after, directory) if store.after is not None else None
        async with real_plane(before) as plane:
            async with connected_to(plane, directory) as bench:
                if before is not None:
                    await until_served(bench.client)
                await store.fill(bench)
            await plane.save(path)
    return path


@contextlib.asynccontextmanager
async def connected(kubeconfig: Path, pids: Sequence[int], directory: Path) -> AsyncIterator[Bench]:
    async with Client.connect(kubeconfig=kubeconfig) as client:
        yield Bench(kubeconfig, pids, client, directory, go_program("load"))


def connected_to(plane: RealControlPlane, directory: Path) -> contextlib.AbstractAsyncContextManager[Bench]:
    return connected(plane.kubeconfig, list(plane.pids.values()), directory)


@contextlib.asynccontextmanager
async def real_plane(store: Path | None = None) -> AsyncIterator[RealControlPlane]:
    plane = RealControlPlane(controllers=False, data=store)
    await plane.start()
    try:
        yield plane
    finally:
        await plane.stop()


@contextlib.asynccontextmanager
async def embedded_plane(directory: Path) -> AsyncIterator[tuple[Path, Sequence[int]]]:
    kubeconfig = directory / "embedded.kubeconfig"
    kubeconfig.unlink(missing_ok=True)
    with running(
        [sys.executable, "-m", "bench.embedded_server", str(kubeconfig)], log=directory / "server.log"
    ) as process:
        while not kubeconfig.exists():
            if process.poll() is not None:
                raise RuntimeError(
                    f"the embedded engine ended: {(directory / 'server.log').read_text()[-500:]}"
                )
            await asyncio.sleep(0.02)
        yield kubeconfig, [process.pid]


async def until_served(client: Client) -> None:
    """Wait until the server can be watched: a kind that is new to it, or to its cache, is not there at once."""
    async with asyncio.timeout(60):
        for kind in (SAMPLES, "apps/v1/Deployment", "v1/Service"):
            while not await watchable(client, kind):  # noqa: ASYNC110 - the server gives no sign
                await asyncio.sleep(0.05)


async def watchable(client: Client, kind: str) -> bool:
    # Of a namespace without any: only that there is an answer counts.
    options: WatchOptions = {"namespace": "kube-public", "send_initial_events": True, "timeout_seconds": 5}
    with contextlib.suppress(ClientError):
        async with contextlib.aclosing(client.watch(kind, **options)) as events:  # type: ignore[type-var]
            async for event in events:
                return isinstance(event, Bookmark)
    return False
