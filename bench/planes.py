"""Control planes for measurements: API servers without controllers, with initial objects."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from bench.measured_plane import SAMPLES, MeasuredPlane
from bench.processes import running
from bench.programs import go_program
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
ACCOUNT_BINDING: dict[str, Any] = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "operator"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [{"kind": "ServiceAccount", "name": "operator", "namespace": "default"}],
}

Fill = Callable[[MeasuredPlane], Awaitable[None]]


class Store(msgspec.Struct, frozen=True):
    """The initial objects of a control plane."""

    name: str
    fill: Fill
    """Creates the objects."""
    after: Store | None = None
    """Objects that must exist before."""

    async def install(self, bench: MeasuredPlane) -> None:
        if self.after is not None:
            await self.after.install(bench)
        await self.fill(bench)


async def define_samples(bench: MeasuredPlane) -> None:
    for body in (SAMPLE_CRD, ACCOUNT, ACCOUNT_BINDING):
        await bench.client.create(body)
    await until_served(bench.client)


KIND = Store("kind", define_samples)
"""The Sample kind, and the service account of the operators."""


def samples(n: int) -> Store:
    """Return a store with sample-0 to sample-(n-1), without a status."""
    return Store(f"{n}-samples", lambda bench: bench.create_samples(n), after=KIND)


@contextlib.asynccontextmanager
async def control_plane(engine: str, directory: Path, store: Store = KIND) -> AsyncIterator[MeasuredPlane]:
    """Start a fresh API server without controllers, with the objects of the store."""
    if engine == "embedded":
        async with (
            embedded_plane(directory) as (kubeconfig, pids),
            connected(kubeconfig, pids, directory) as bench,
        ):
            await store.install(bench)
            yield bench
        return
    async with real_plane(await saved(store, directory)) as plane, connected_to(plane, directory) as bench:
        await until_served(bench.client)
        yield msgspec.structs.replace(bench, kubeconfig=await account_kubeconfig(bench))


async def account_kubeconfig(bench: MeasuredPlane) -> Path:
    """Write the kubeconfig of the measured operator, with the token of a service account, as in a Pod.

    With the administrator's certificate, each request would cost a verification of its signature (NOTES.md).
    """
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    response = await bench.client.create_subresource(
        "v1/ServiceAccount", ACCOUNT["metadata"]["name"], "token", request, namespace="default"
    )
    config = yaml.safe_load(bench.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": response["status"]["token"]}
    path = bench.directory / "operator.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


async def saved(store: Store, directory: Path) -> Path:
    """Return the data directory of a store, created on first use.

    A real control plane starts on a copy. Creating thousands of samples for each peer would take longer than
    most measurements.
    """
    path = directory / f"store-{store.name}"
    if not path.exists():
        before = await saved(store.after, directory) if store.after is not None else None
        async with real_plane(before) as plane:
            async with connected_to(plane, directory) as bench:
                if before is not None:
                    await until_served(bench.client)
                await store.fill(bench)
            await plane.save(path)
    return path


@contextlib.asynccontextmanager
async def connected(kubeconfig: Path, pids: Sequence[int], directory: Path) -> AsyncIterator[MeasuredPlane]:
    async with Client.connect(kubeconfig=kubeconfig) as client:
        yield MeasuredPlane(kubeconfig, pids, client, directory, go_program("load"))


def connected_to(
    plane: RealControlPlane, directory: Path
) -> contextlib.AbstractAsyncContextManager[MeasuredPlane]:
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
                    f"the embedded engine exited: {(directory / 'server.log').read_text()[-500:]}"
                )
            await asyncio.sleep(0.02)
        yield kubeconfig, [process.pid]


async def until_served(client: Client) -> None:
    """Wait until all kinds can be watched. A new kind is not served at once."""
    async with asyncio.timeout(60):
        for kind in (SAMPLES, "apps/v1/Deployment", "v1/Service"):
            while not await watchable(client, kind):  # noqa: ASYNC110 - the server sends no notification
                await asyncio.sleep(0.05)


async def watchable(client: Client, kind: str) -> bool:
    # In an empty namespace: only the response counts.
    options: WatchOptions = {"namespace": "kube-public", "send_initial_events": True, "timeout_seconds": 5}
    with contextlib.suppress(ClientError):
        async with contextlib.aclosing(client.watch(kind, **options)) as events:  # type: ignore[type-var]
            async for event in events:
                return isinstance(event, Bookmark)
    return False
