"""`kapsa inspect`, as a process, shows the inside of an operator that runs on a cluster, on both engines."""

from __future__ import annotations

import asyncio
import sys

import pytest

from kapsa.devcluster import DevCluster
from kapsa.runtime import Client, Context, Operator, Requeue
from kapsa.runtime.testing import Harness
from tests.eventually import eventually
from tests.runtime.sample_app import App, Recorder, app

KAPSA = [sys.executable, "-c", "from kapsa.cli import main; main()"]


async def work(resource: App, ctx: Context[App]) -> Requeue | None:
    if resource.name == "broken":
        raise RuntimeError("the disk is full")
    return Requeue(after=3600)


async def inspect(port: int, *arguments: str) -> str:
    """Return what `kapsa inspect` prints about the operator at this debug port."""
    command = (*KAPSA, "inspect", "--port", str(port), *arguments)
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, output.decode()
    return output.decode()


@pytest.mark.timeout(300)
async def test_inspect_shows_what_a_broken_and_a_delayed_resource_wait_for(cluster: DevCluster) -> None:
    namespace = "inspected"
    operator = Operator(
        controllers=[Recorder(work, owns=("v1/ConfigMap",))],
        namespaces=[namespace],
        debug_port=0,
        health_port=None,
        metrics_port=None,
    )
    harness = Harness(cluster)
    await harness.install(App)
    await harness.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    async with (
        Client.connect(kubeconfig=cluster.kubeconfig) as client,
        operator.running(client) as run,
    ):
        port = run.probes.ports["debug"]
        await harness.apply(app("broken", namespace=namespace), app("delayed", namespace=namespace))
        for name, waits in (("broken", "its retry after an error"), ("delayed", "the time it requested")):
            output = await eventually(
                lambda name=name: inspect(port, f"{namespace}/{name}"),
                lambda text, waits=waits: waits in text,
                f"{name} delayed",
            )
            assert ("the disk is full" in output) == (name == "broken")
        overview = await inspect(port)
    await harness.close()
    for part in (f"{namespace}/broken", f"{namespace}/delayed", f"v1/ConfigMap in {namespace}", "watching"):
        assert part in overview
    assert "RuntimeError: the disk is full" in overview.partition("Last errors")[2]
