"""Clusters that an operator of the tests works in, and a provider whose set the test decides."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

from kapsa.devcluster import DevCluster
from kapsa.devcluster.faults import Drop, FaultPlan, FaultRule
from kapsa.runtime import Clock, ClusterSet, MemberCluster
from kapsa.runtime.testing import Harness
from tests.runtime.sample_app import App

__all__ = ["Announced", "Member", "members"]


class Member:
    """A cluster that an operator of the tests works in."""

    def __init__(self, harness: Harness, faults: FaultPlan) -> None:
        self.harness = harness
        self.faults = faults

    def cluster(self, revision: str = "", *, name: str = "operator") -> MemberCluster:
        return MemberCluster(lambda clock: self.harness.connect(name, clock=clock), revision)

    def cut(self) -> FaultRule:
        """Let no request of the operator through."""
        self.faults.order(Drop(), client="operator")
        return self.faults.add(FaultRule(action=Drop(), client="operator", times=0))


class Announced:
    """A provider whose set of clusters the test decides."""

    def __init__(self, clusters: Mapping[str, MemberCluster]) -> None:
        self._changes: asyncio.Queue[ClusterSet | BaseException] = asyncio.Queue()
        self.announce(clusters)

    def announce(self, clusters: Mapping[str, MemberCluster]) -> None:
        self._changes.put_nowait(dict(clusters))

    def fail(self, error: BaseException | None = None) -> None:
        self._changes.put_nowait(error or OSError("the inventory is not reachable"))

    async def clusters(self, clock: Clock) -> AsyncIterator[ClusterSet]:
        while True:
            change = await self._changes.get()
            if isinstance(change, BaseException):
                raise change
            yield change


@contextlib.asynccontextmanager
async def members(harness: Harness, *names: str) -> AsyncIterator[dict[str, Member]]:
    """Start clusters with the CRD, on the clock of the harness."""
    async with contextlib.AsyncExitStack() as stack:
        started: dict[str, Member] = {}
        for seed, name in enumerate(names):
            plan = FaultPlan()
            cluster = await stack.enter_async_context(
                DevCluster(clock=harness.clock, faults=plan, http=False, seed=seed)
            )
            member = Harness(cluster, clock=harness.clock)
            stack.push_async_callback(member.close)
            await member.install(App)
            started[name] = Member(member, plan)
        try:
            yield started
        finally:
            await harness.close()  # the operators leave before the clusters go
