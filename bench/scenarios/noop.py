"""Reconciles that change nothing: their rate from the cache, and the requests they make."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from bench.peers import kapsa_sample
from bench.results import Measurement
from bench.scenarios import Scenario
from kapsa.runtime import Operator, Reason
from kapsa.runtime.testing import DevCluster, Harness

ROUNDS = 3


async def reconciles(n: int, directory: Path) -> list[Measurement]:
    """Measure reconciles of n converged resources on one core, without children and with two each."""
    measurements = []
    for name, operator in (("no children", kapsa_sample.status), ("two children", kapsa_sample.owned)):
        values = await rate(operator, kapsa_sample.Sample, n)
        measurements.append(Measurement("noop", name, n, values))
    return measurements


async def rate(operator: Operator, resource: type, n: int) -> dict[str, float]:
    async with DevCluster(http=False, controllers=False) as cluster:
        harness = Harness(cluster)
        await harness.install(resource)
        for i in range(n):
            await harness.client.create(
                resource(metadata={"name": f"sample-{i}", "namespace": "default"}, spec={"value": 1})
            )
        run = await harness.start(operator)
        try:
            await harness.settle(quiet=1.0)
            (reconciler,) = run.reconcilers
            before = len(harness.calls)
            keys = [stored.key for stored in reconciler.informers[0].store]
            started, cpu = time.monotonic(), time.process_time()
            for _ in range(ROUNDS):
                for key in keys:
                    reconciler.queue.add(key, Reason("bench"))
                while not reconciler.queue.idle:  # noqa: ASYNC110 - the queue has no event for it, and time is what we measure
                    await asyncio.sleep(0)
            cpu, wall = time.process_time() - cpu, time.monotonic() - started
            requests = len(harness.calls) - before
        finally:
            await harness.close()
    return {
        "reconciles per CPU s": n * ROUNDS / cpu,
        "reconciles per s": n * ROUNDS / wall,
        "API requests": requests,
    }


SCENARIO = Scenario(
    name="noop",
    about="reconciles of n converged resources that change nothing, from the cache",
    sizes=(500, 2000),
    run=reconciles,
    needs_go=False,
)
