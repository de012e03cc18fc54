"""controller-runtime, unchanged from its module, runs an operator with owned children against the embedded engine."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.planes import SAMPLE_CRD, until_served
from bench.programs import go_program
from kapsa.devcluster import DevCluster
from kapsa.devcluster.wire.exchange import Reply, Request
from kapsa.runtime import Client
from tests.eventually import eventually

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]

SAMPLES = "bench.kapsa.dev/v1/Sample"
CHILDREN = ("apps/v1/Deployment", "v1/Service")
COUNT = 50
COLLECTIONS = ("/apis/apps/v1/namespaces/default/deployments", "/api/v1/namespaces/default/services")
PROTOBUF = "application/vnd.kubernetes.protobuf"
MERGE_PATCH = "application/merge-patch+json"


@pytest.fixture(scope="module")
def operator() -> Path:
    """The operator that the benchmarks measure; a first build downloads and compiles its modules."""
    program = go_program("controller-runtime")
    if program is None:
        pytest.skip("Go is not installed")
    return program


def record_bodies(cluster: DevCluster, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str, bytes]]:
    """Return a list that grows with the method, path, content type and body of each write from now on."""
    handle = cluster.server.handle
    bodies: list[tuple[str, str, str, bytes]] = []

    async def recorded(request: Request) -> Reply:
        if request.body:
            content_type = request.headers.get("content-type", "")
            bodies.append((request.method, request.path, content_type, request.body))
        return await handle(request)

    monkeypatch.setattr(cluster.server, "handle", recorded)
    return bodies


@asynccontextmanager
async def operator_running(program: Path, cluster: DevCluster, log: Path) -> AsyncIterator[None]:
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            str(program),
            "-owned=true",
            env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield
        assert process.returncode is None, log.read_text()[-3000:]
    finally:
        if process.returncode is None:
            process.terminate()
        async with asyncio.timeout(60):
            await process.wait()


async def statuses(client: Client) -> dict[str, int]:
    """Return the value in the status of each sample that has one."""
    samples = (await client.list(SAMPLES, namespace="default")).items
    return {each["metadata"]["name"]: each["status"]["value"] for each in samples if "status" in each}


async def children(client: Client, kind: str) -> dict[str, dict[str, Any]]:
    """Return the objects of a kind that a sample controls, by the UID of the sample."""
    controlled = {}
    for child in (await client.list(kind, namespace="default")).items:
        for owner in child["metadata"].get("ownerReferences", ()):
            if owner["kind"] == "Sample" and owner["controller"]:
                controlled[owner["uid"]] = child
    return controlled


async def test_owned_children_are_created_restored_and_reported(
    operator: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "operator.log"
    names = [f"sample-{number}" for number in range(COUNT)]
    async with DevCluster() as cluster, Client.connect(kubeconfig=cluster.kubeconfig) as client:
        await client.create(SAMPLE_CRD)
        await until_served(client)
        uids = {}
        for name in names:
            body = {"apiVersion": "bench.kapsa.dev/v1", "kind": "Sample", "spec": {"value": 1}}
            sample = await client.create({**body, "metadata": {"name": name, "namespace": "default"}})
            uids[name] = sample["metadata"]["uid"]
        bodies = record_bodies(cluster, monkeypatch)

        async def all_have(value: int) -> None:
            expected = dict.fromkeys(names, value)
            await eventually(lambda: statuses(client), lambda read: read == expected, f"statuses of {value}")

        async with operator_running(operator, cluster, log):
            await all_have(1)
            for kind in CHILDREN:
                controlled = await children(client, kind)
                assert {uid: child["metadata"]["name"] for uid, child in controlled.items()} == {
                    uid: name for name, uid in uids.items()
                }
            written = list(bodies)

            for name in names:
                await client.patch(SAMPLES, name, {"spec": {"value": 2}}, namespace="default")
            await all_have(2)

            await client.delete("v1/Service", names[0], namespace="default")
            await eventually(
                lambda: children(client, "v1/Service"), lambda read: len(read) == COUNT, "it again"
            )

    # An operator whose cache lags sends some writes twice.
    built_in = [each for each in written if each[1] in COLLECTIONS]
    assert len(built_in) >= 2 * COUNT
    assert {content_type for _, _, content_type, _ in built_in} == {PROTOBUF}
    assert all(body.startswith(b"k8s\0") for _, _, _, body in built_in)
    reported = {path for _, path, content_type, _ in written if content_type == MERGE_PATCH}
    assert reported == {
        f"/apis/bench.kapsa.dev/v1/namespaces/default/samples/{name}/status" for name in names
    }
