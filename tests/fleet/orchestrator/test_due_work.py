"""Work that is due at intervals: one object that hangs or fails delays no other, and none is done twice at a time."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from structlog.testing import capture_logs

from kapsa.fleet.orchestrator.due_work import DueWork
from kapsa.fleet.server.background import SHORT_PAUSE, BackgroundTask, BackgroundTasks

pytestmark = pytest.mark.virtual_time

INTERVAL = 30.0
HANG_SECONDS = 150.0


class DueClusters:
    """Clusters that are due every 30 seconds, and take a second each. Those that hang take 150."""

    def __init__(self, count: int) -> None:
        self.ids = [uuid.UUID(int=number) for number in range(count)]
        self.due = dict.fromkeys(self.ids, 0.0)
        self.hanging: set[uuid.UUID] = set()
        self.failing: set[uuid.UUID] = set()
        self.begun: dict[uuid.UUID, list[float]] = {each: [] for each in self.ids}
        self.at_work: set[uuid.UUID] = set()
        self.most_at_work = 0

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        yield

    async def claim(
        self, connection: Any, *, limit: int, at_work: Sequence[uuid.UUID]
    ) -> dict[uuid.UUID, uuid.UUID]:
        now = asyncio.get_running_loop().time()
        free = sorted((due, each) for each, due in self.due.items() if due <= now and each not in at_work)
        claimed = [each for _, each in free[:limit]]
        self.due |= dict.fromkeys(claimed, now + INTERVAL)
        return {each: each for each in claimed}

    async def work(self, cluster: uuid.UUID) -> None:
        assert cluster not in self.at_work, "a cluster is swept twice at a time"
        self.begun[cluster].append(asyncio.get_running_loop().time())
        self.at_work.add(cluster)
        self.most_at_work = max(self.most_at_work, len(self.at_work))
        try:
            await asyncio.sleep(HANG_SECONDS if cluster in self.hanging else 1.0)
        finally:
            self.at_work.remove(cluster)
        if cluster in self.failing:
            raise RuntimeError("on purpose")

    def due_work(self, parallel: int) -> DueWork[uuid.UUID]:
        async def next_due(connection: Any) -> None:
            return None

        transactions: Any = self
        return DueWork(transactions, self.claim, next_due, self.work, parallel=parallel)

    def longest_pause(self, cluster: uuid.UUID) -> float:
        times = self.begun[cluster]
        return max(late - early for early, late in itertools.pairwise(times))


async def repeat(due: DueWork[uuid.UUID], seconds: float) -> None:
    """Run what is due for a time, as the background task does."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                with suppress(RuntimeError):
                    await due.run_due()
                await asyncio.sleep(1)


async def test_a_cluster_that_hangs_does_not_delay_the_others() -> None:
    clusters = DueClusters(10)
    hanging, *healthy = clusters.ids
    clusters.hanging = {hanging}
    await repeat(clusters.due_work(parallel=3), 300)
    assert max(map(clusters.longest_pause, healthy)) <= INTERVAL + 5
    assert len(clusters.begun[hanging]) == 2
    assert clusters.most_at_work == 3


async def test_a_cluster_that_fails_does_not_delay_the_others_and_its_failure_is_raised_at_once() -> None:
    clusters = DueClusters(4)
    hanging, failing, *healthy = clusters.ids
    clusters.hanging, clusters.failing = {hanging}, {failing}
    due = clusters.due_work(parallel=2)
    async with asyncio.timeout(2):
        with pytest.raises(RuntimeError, match="on purpose"):
            await due.run_due()
    await repeat(due, 300)
    assert max(map(clusters.longest_pause, healthy)) <= INTERVAL + 5


async def test_clusters_that_always_fail_delay_the_others_by_seconds_as_a_background_task() -> None:
    clusters = DueClusters(40)
    clusters.failing = set(clusters.ids[::8])
    healthy = set(clusters.ids) - clusters.failing
    work = clusters.due_work(parallel=4)
    tasks = BackgroundTasks(
        (BackgroundTask("sweeps", work.run_due, longest_pause=SHORT_PAUSE, on_stop=work.stop),)
    )
    with capture_logs():
        tasks.start()
        await asyncio.sleep(1800)
        await tasks.stop()
    assert max(map(clusters.longest_pause, healthy)) <= 2 * INTERVAL


async def test_no_more_is_claimed_than_there_are_free_slots() -> None:
    clusters = DueClusters(10)
    run = asyncio.create_task(clusters.due_work(parallel=4).run_due())
    await asyncio.sleep(0.5)
    assert sum(due == 0 for due in clusters.due.values()) == 6, "the others are left to other replicas"
    assert await run == 10


async def test_a_stop_ends_what_is_at_work_and_begins_nothing_more() -> None:
    clusters = DueClusters(10)
    due = clusters.due_work(parallel=4)
    run = asyncio.create_task(due.run_due())
    await asyncio.sleep(0.5)
    due.stop()
    assert await run == 4
    assert await due.run_due() == 0


async def test_a_stop_after_a_failure_leaves_nothing_at_work() -> None:
    clusters = DueClusters(2)
    clusters.hanging, clusters.failing = {clusters.ids[0]}, {clusters.ids[1]}
    due = clusters.due_work(parallel=2)
    with pytest.raises(RuntimeError, match="on purpose"):
        await due.run_due()
    due.stop()
    await asyncio.sleep(0)
    assert clusters.at_work == set()


async def test_a_cancellation_leaves_nothing_at_work() -> None:
    clusters = DueClusters(2)
    clusters.hanging = set(clusters.ids)
    run = asyncio.create_task(clusters.due_work(parallel=2).run_due())
    await asyncio.sleep(0.5)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert clusters.at_work == set()
