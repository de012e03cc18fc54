"""Embedded clusters on which operators run, in their own process.

`python -m bench.fleet.cluster_process FIRST COUNT INSTALLED WEBHOOK` starts clusters with TLS, controllers and
simulated pods, puts the releases of the first operators on each, prints a line of JSON with the kubeconfigs, and ends
with its standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import msgspec

from bench.fleet.charts import (
    FIRST_VERSION,
    WebhookAddress,
    group_of,
    release_objects,
    release_secret,
    widget,
    widget_crd,
)
from bench.fleet.child_process import announce
from bench.fleet.size import cluster_name, operator_name
from kapsa.devcluster import DevCluster
from kapsa.runtime import Client
from kapsa.runtime.testing import InProcessTransport

WIDGETS = 5
"""Resources of each operator on each cluster."""
_READY_SECONDS = 300.0


class ServedCluster(msgspec.Struct, frozen=True):
    """A cluster that can be registered."""

    name: str
    kubeconfig: str
    port: int


async def serve(first: int, count: int, installed: int, webhook: WebhookAddress) -> None:
    """Serve until the standard input ends."""
    async with contextlib.AsyncExitStack() as stack:
        clusters = []
        for number in range(first, first + count):
            cluster = await stack.enter_async_context(DevCluster(tls=True))
            client = await stack.enter_async_context(Client(InProcessTransport(cluster)))
            for operator in map(operator_name, range(installed)):
                await install(client, operator, webhook)
            await until_ready(client, installed)
            port = urlsplit(cluster.url).port
            assert port is not None
            clusters.append(ServedCluster(cluster_name(number), cluster.kubeconfig.read_text(), port))
        await announce(clusters)


async def install(client: Client, operator: str, webhook: WebhookAddress) -> None:
    """Put a release on a cluster as Helm does, and resources that its controller has reconciled."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": operator}}
    await client.create(namespace)
    await client.apply(widget_crd(operator), field_manager="helm")
    for number in range(WIDGETS):  # before the webhook, which would be called for each
        await create_widget(client, operator, number)
    for each in release_objects(operator, FIRST_VERSION, webhook):
        await client.apply(owned(each, operator), field_manager="helm")
    await client.create(release_secret(operator, FIRST_VERSION, webhook))


async def create_widget(client: Client, operator: str, number: int) -> None:
    created = await client.create(widget(operator, number))
    metadata = created["metadata"]
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "Reconciled",
        "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    status = {"status": {"observedGeneration": metadata["generation"], "conditions": [condition]}}
    kind = f"{group_of(operator)}/v1/Widget"
    await client.patch(kind, metadata["name"], status, namespace=operator, subresource="status")


def owned(manifest: dict[str, Any], operator: str) -> dict[str, Any]:
    """Return an object with the marks that Helm leaves on what it has made."""
    metadata = manifest["metadata"]
    marks = {"meta.helm.sh/release-name": operator, "meta.helm.sh/release-namespace": operator}
    labels = {**metadata.get("labels", {}), "app.kubernetes.io/managed-by": "Helm"}
    return {**manifest, "metadata": {**metadata, "labels": labels, "annotations": marks}}


async def until_ready(client: Client, installed: int) -> None:
    """Wait until all controllers run."""
    deadline = time.monotonic() + _READY_SECONDS
    while True:
        listed = (await client.list("apps/v1/Deployment")).items
        ready = sum(1 for each in listed if (each.get("status") or {}).get("readyReplicas"))
        if ready == installed:
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"{ready} of {installed} controllers are ready after {_READY_SECONDS:.0f} s")
        await asyncio.sleep(0.1)


if __name__ == "__main__":
    first, count, installed = map(int, sys.argv[1:4])
    asyncio.run(serve(first, count, installed, msgspec.json.decode(sys.argv[4], type=WebhookAddress)))
