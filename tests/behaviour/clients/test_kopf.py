"""kopf, unchanged from its package, runs an operator against the cluster."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kapsa.devcluster import DevCluster
from kapsa.runtime import Client
from tests.eventually import eventually

KITES = "kopf.kapsa.dev/v1/Kite"
OPERATOR = Path(__file__).with_name("kopf_operator.py")
CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "kites.kopf.kapsa.dev"},
    "spec": {
        "group": "kopf.kapsa.dev",
        "scope": "Namespaced",
        "names": {"plural": "kites", "singular": "kite", "kind": "Kite"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                },
            }
        ],
    },
}


class CallLog:
    """The calls that the operator recorded in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def lines(self) -> list[str]:
        return self.path.read_text().splitlines()

    async def has(self, expected: str, condition: Callable[[list[str]], bool]) -> None:
        async def read() -> list[str]:
            return self.lines()

        await eventually(read, condition, expected)


@asynccontextmanager
async def kopf_running(cluster: DevCluster, calls: CallLog, log: Path) -> AsyncIterator[None]:
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "KOPF_CALLS": str(calls.path)}
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "kopf", "run", "--namespace", "default", "--standalone", str(OPERATOR)),
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20):
            await process.wait()


@pytest.mark.long
async def test_kopf_runs_its_operator_from_create_to_delete(cluster: DevCluster, tmp_path: Path) -> None:
    calls, log = CallLog(tmp_path / "calls"), tmp_path / "kopf.log"
    async with Client.connect(kubeconfig=cluster.kubeconfig) as client:
        await client.apply(CRD, force=True)
        await established(client)
        async with kopf_running(cluster, calls, log):
            kite = {
                "apiVersion": "kopf.kapsa.dev/v1",
                "kind": "Kite",
                "metadata": {"name": "red", "namespace": "default"},
                "spec": {"length": 1},
            }
            await client.create(kite)
            await calls.has("create", lambda lines: "created red" in lines)
            await status_is(client, 1)
            stored = await client.get(KITES, "red", namespace="default")
            assert stored["metadata"]["finalizers"] == ["kopf.zalando.org/KopfFinalizerMarker"]

            await client.patch(KITES, "red", {"spec": {"length": 2}}, namespace="default")
            await calls.has("update", lambda lines: "updated red 1 2" in lines)
            await status_is(client, 2)
            await calls.has("tick twice", lambda lines: lines.count("ticked red") >= 2)

        async with kopf_running(cluster, calls, log):
            await calls.has("resume", lambda lines: "resumed red" in lines)
            await client.delete(KITES, "red", namespace="default")
            await calls.has("delete", lambda lines: "deleted red" in lines)
            await gone(client)
    assert calls.lines().count("created red") == 1
    assert calls.lines().count("deleted red") == 1


async def status_is(client: Client, length: int) -> None:
    await eventually(
        lambda: client.get(KITES, "red", namespace="default"),
        lambda kite: kite.get("status", {}).get("length") == length,
        f"a status of length {length}",
    )


async def gone(client: Client) -> None:
    await eventually(
        lambda: client.list(KITES, namespace="default"), lambda kites: not kites.items, "an empty list"
    )


async def established(client: Client) -> None:
    await eventually(
        lambda: client.get("apiextensions.k8s.io/v1/CustomResourceDefinition", "kites.kopf.kapsa.dev"),
        lambda crd: any(
            condition["type"] == "Established" and condition["status"] == "True"
            for condition in crd.get("status", {}).get("conditions") or ()
        ),
        "an established definition",
    )
