"""The watchdog of the event loop."""

from __future__ import annotations

import asyncio
import re
import time

from structlog.testing import capture_logs

from kapsa.devcluster import DevCluster
from kapsa.runtime import Client, Context, LeaderElection, Operator, WriteRefused
from kapsa.runtime.telemetry.loop_watch import LoopWatch
from kapsa.runtime.testing import Harness, InProcessTransport
from tests.eventually import eventually
from tests.runtime.sample_app import App, Recorder, app


async def test_a_blocked_event_loop_is_reported_with_the_stack_that_blocks_it() -> None:
    stacks: list[str] = []
    watch = LoopWatch(limit=0.2, interval=0.05, on_blocked=stacks.append)
    with capture_logs() as logs:
        watch.start()
        await asyncio.sleep(0.1)
        block_the_loop(0.6)

        async def last_event() -> str:
            return str(logs[-1]["event"])

        await eventually(last_event, lambda event: event == "event loop unblocked", "the end of the block")
    # A busy machine can block the loop, too, which is then reported as well.
    assert any("block_the_loop" in stack for stack in stacks)
    assert [line["stack"] for line in logs if line["event"] == "event loop blocked"] == stacks
    await watch.stop()


def block_the_loop(seconds: float) -> None:
    time.sleep(seconds)


async def test_a_blocked_event_loop_loses_the_lease_and_writes_nothing_after_it() -> None:
    refused = asyncio.Event()

    async def block(resource: App, ctx: Context[App]) -> None:
        if refused.is_set():
            return
        block_the_loop(1.0)
        try:
            await ctx.client.patch(App, resource.name, {"spec": {"replicas": 9}}, namespace="default")
        except WriteRefused:
            refused.set()
            raise

    election = LeaderElection(name="lock", lease_duration=1.2, renew_deadline=0.8, retry_period=0.1)
    async with DevCluster(http=False) as cluster:
        harness = Harness(cluster)
        await harness.install(App)
        operator = Operator(
            controllers=[Recorder(block)],
            leader_election=election,
            metrics_port=None,
            health_port=None,
            loop_limit=0.3,
            check_rights=False,
        )
        await harness.apply(app("a"))
        with capture_logs() as logs:
            async with operator.running(Client(InProcessTransport(cluster, client="operator"))) as run:
                await asyncio.wait_for(refused.wait(), 10)
                await asyncio.sleep(0.05)
                metrics = run.metrics.render().decode()
        said = [line["event"] for line in logs]
        assert said.index("event loop blocked") < said.index("no longer leading")
        assert re.search(r"event_loop_blocked_total [1-9]", metrics)
        assert (await harness.get(App, "a")).spec.replicas == 1


async def test_liveness_fails_while_the_loop_is_late(harness: Harness) -> None:
    await harness.install(App)
    operator = Operator(controllers=[Recorder()], metrics_port=None, health_port=None, check_rights=False)
    async with operator.running(harness.connect("operator")) as run:
        await run.wait_until_synced()
        assert run.health.report(run.health.live)[0]
        assert run.loop_watch is not None
        run.loop_watch.limit = 0.2
        await asyncio.sleep(0.3)
        block_the_loop(0.6)
        alive, report = run.health.report(run.health.live)
        assert not alive
        assert "[-] event loop: blocked for 0." in report
