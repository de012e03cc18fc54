"""Stopping an operator whose reconcile does not cooperate, and keeping its workers alive until then."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kapsa.devcluster import DevCluster
from kapsa.runtime import Client, Context, Operator
from kapsa.runtime.testing import Harness
from tests.runtime.sample_app import App, Recorder, app

virtual_time = pytest.mark.virtual_time

STUBBORN = """
import asyncio
from kapsa.runtime import *

class StubbornController(Controller):
    resource = "v1/ConfigMap"
    reconcile_timeout = None

    async def reconcile(self, resource, ctx):
        print("running", flush=True)
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                pass

operator = Operator(
    controllers=[StubbornController()], metrics_port=None, health_port=None, shutdown_grace=0.2,
    leader_election="stubborn", check_rights=False,
)
"""


@virtual_time
async def test_a_stop_gives_up_a_reconcile_that_swallows_its_cancellation_and_keeps_the_lease(
    harness: Harness,
) -> None:
    released = asyncio.Event()

    async def stubborn(resource: App, ctx: Context[App]) -> None:
        while not released.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await released.wait()

    await harness.install(App)
    await harness.apply(app("a"))
    operator = Operator(
        controllers=[Recorder(stubborn, reconcile_timeout=None)], leader_election="lock", shutdown_grace=10.0
    )
    run = await harness.start(operator)
    await harness.clock.sleep(5)
    began = harness.clock.monotonic()
    with capture_logs() as logs:
        await harness.stop()
    released.set()
    assert harness.clock.monotonic() - began < 20
    assert run.stuck == ["app worker 1"]
    (report,) = [each for each in logs if "ignored its cancellation" in each["event"]]
    assert report["objects"] == ["default/a"]
    lease = await harness.get("coordination.k8s.io/v1/Lease", "lock")
    assert lease["spec"]["holderIdentity"], "a released lease would let another process write meanwhile"


@pytest.mark.long
async def test_a_process_ends_after_its_grace_although_a_reconcile_swallows_cancellation(
    tmp_path: Path,
) -> None:
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    async with DevCluster() as cluster:
        async with Client.connect(kubeconfig=cluster.kubeconfig) as client:
            manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
            await client.create(manifest, namespace="default")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "kapsa.runtime.operator.entrypoint", "stubborn:operator"),
            *("--kubeconfig", str(cluster.kubeconfig)),
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            assert process.stdout is not None
            async with asyncio.timeout(30):
                await process.stdout.readuntil(b"running")
            process.send_signal(signal.SIGTERM)
            began = time.monotonic()
            async with asyncio.timeout(20):
                assert await process.wait() == 1
            assert time.monotonic() - began < 15
        finally:
            if process.returncode is None:
                process.kill()


@virtual_time
async def test_a_reconcile_that_cancels_its_own_task_is_retried_and_others_still_run(
    harness: Harness,
) -> None:
    left = [3]

    async def cancel_itself(resource: App, ctx: Context[App]) -> None:
        if resource.name == "a" and left[0]:
            left[0] -= 1
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(1)

    controller = Recorder(cancel_itself)
    await harness.install(App)
    await harness.start(Operator(controllers=[controller]))
    await harness.apply(app("a"))
    await harness.settle()
    await harness.apply(app("b"))
    await harness.settle()
    assert controller.runs == ["a", "a", "a", "a", "b"]
