"""The member clusters of a running operator: one task for each, which follows what the provider last said about it.

No cluster waits for another: each has its own task, connections, caches, queues and workers. A cluster that leaves lets
its running reconciles finish; one that comes back, under the same name or another, waits for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import structlog

from kapsa.runtime.cancellation import await_user_code
from kapsa.runtime.client.client import Client
from kapsa.runtime.clock import Clock
from kapsa.runtime.controller.work.workqueue import Backoff
from kapsa.runtime.operator._occupancy import Occupancy, cluster_uid
from kapsa.runtime.operator.cluster_run import ClusterRun
from kapsa.runtime.operator.clusters import ClusterProvider, ClusterSet, MemberCluster
from kapsa.runtime.telemetry.health import HealthCheckResult, HealthChecks
from kapsa.runtime.telemetry.metrics import ClusterMetrics, Metrics

__all__ = ["Members"]

_log = structlog.get_logger(__name__)

T = TypeVar("T")

Engage = Callable[[str, str, Client, ClusterMetrics], ClusterRun]
"""Starts the controllers in a cluster, by its name and UID, with its client and its metrics."""

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_BACKOFF = Backoff(initial=1.0, max=60.0)
"""The wait before a provider, or the connection to a cluster, is tried again after a failure."""
_STOP_SECONDS = 30.0
"""Seconds beyond the grace of running reconciles after which a cluster is left behind at shutdown."""


class Members:
    """The clusters of a provider, and the run in each."""

    def __init__(
        self,
        provider: ClusterProvider,
        engage: Engage,
        *,
        metrics: Metrics,
        health: HealthChecks,
        clock: Clock,
        grace: float,
    ) -> None:
        self._provider = provider
        self._engage = engage
        self._metrics = metrics
        self._health = health
        self._clock = clock
        self._grace = grace
        self._members: dict[str, _Member] = {}
        self._occupancy = Occupancy()
        self._follower: asyncio.Task[None] | None = None
        self._listed = False
        self._trouble = ""
        self._failures = 0
        """Failures of the provider since its last set."""
        self.stuck: list[str] = []
        """The runs that ignored their cancellation at the stop, each with its cluster."""

    # -- state -------------------------------------------------------------------------------------------------

    @property
    def runs(self) -> dict[str, ClusterRun]:
        """The run in each cluster that is connected, by name."""
        return {name: member.run for name, member in self._members.items() if member.run is not None}

    @property
    def idle(self) -> bool:
        """True if the provider has answered and no cluster has work to do. An unreachable cluster has none."""
        return bool(self._listed or self._trouble) and all(member.idle for member in self._members.values())

    def provider_result(self) -> HealthCheckResult:
        """Return whether the set of clusters has been read, and how many clusters it has."""
        if self._trouble:
            return HealthCheckResult(ok=self._listed, degraded=True, text=self._trouble)
        text = f"{len(self._members)} clusters" if self._listed else "not listed yet"
        return HealthCheckResult(ok=self._listed, text=text)

    # -- following the provider --------------------------------------------------------------------------------

    def start(self) -> None:
        """Start to follow the provider."""
        self._follower = asyncio.create_task(self._follow(), name="clusters")

    async def _follow(self) -> None:
        while True:
            try:
                await await_user_code(self._receive())
                error = "it ended"
            except Exception as raised:
                error = f"{type(raised).__name__}: {raised}"
            self._failures += 1
            self._trouble = (
                f"the provider of clusters failed, {len(self._members)} clusters are kept: {error}"
            )
            _log.error("provider of clusters failed: the present clusters are kept", error=error)
            await self._clock.sleep(_BACKOFF.delay(self._failures))

    async def _receive(self) -> None:
        async for clusters in self._provider.clusters(self._clock):
            self._set(clusters)
            self._failures = 0

    def _set(self, clusters: ClusterSet) -> None:
        """Start what is new, stop what is gone, reconnect what has changed."""
        self._listed, self._trouble = True, ""
        for name in self._members.keys() - clusters.keys():
            self._members[name].aim(None)
        for name, cluster in clusters.items():
            if not _NAME.fullmatch(name):
                _log.error(
                    "cluster skipped: a name is at most 63 letters, digits, dashes, dots and underscores",
                    name=name[:100],
                )
            elif (member := self._members.get(name)) is not None and not member.ended:
                member.aim(cluster)
            else:
                self._add(name, cluster)

    def _add(self, name: str, cluster: MemberCluster) -> None:
        member = _Member(
            name,
            cluster,
            self._engage,
            occupancy=self._occupancy,
            metrics=self._metrics,
            clock=self._clock,
            grace=self._grace,
        )
        self._members[name] = member
        self._health.ready[f"cluster {name}"] = member.result
        member.start(lambda: self._forget(member))

    def _forget(self, ended: _Member) -> None:
        if self._members.get(ended.name) is ended:  # the cluster may have come back already
            del self._members[ended.name]
            del self._health.ready[f"cluster {ended.name}"]

    # -- stopping ----------------------------------------------------------------------------------------------

    async def stop(self, *, grace: float) -> None:
        """Leave every cluster, with `grace` seconds for running reconciles."""
        await self._stop_following()
        tasks = [member.leave(grace) for member in self._members.values()]
        members = list(self._members.values())
        if tasks:
            await asyncio.wait(tasks, timeout=grace + _STOP_SECONDS)
        for member in members:
            self.stuck += [f"{member.name}: {each}" for each in member.stuck]

    async def kill(self) -> None:
        """Stop at once, as in a crash."""
        await self._stop_following()
        tasks = [member.kill() for member in self._members.values()]
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _stop_following(self) -> None:
        follower, self._follower = self._follower, None
        if follower is not None:
            follower.cancel()
            await asyncio.gather(follower, return_exceptions=True)


class _Member:
    """One cluster. Its task runs the controllers there for as long as the provider lists it."""

    def __init__(
        self,
        name: str,
        target: MemberCluster,
        engage: Engage,
        *,
        occupancy: Occupancy,
        metrics: Metrics,
        clock: Clock,
        grace: float,
    ) -> None:
        self.name = name
        self.run: ClusterRun | None = None
        self._target: MemberCluster | None = target
        self._engage = engage
        self._occupancy = occupancy
        self._metrics = metrics
        self._clock = clock
        self._grace = grace
        self._last = False
        self._trouble = ""
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._left_behind: list[str] = []

    def start(self, ended: Callable[[], None]) -> None:
        """Start the task of this cluster. `ended` is called once the cluster has been left for good."""
        self._task = asyncio.create_task(self._keep(), name=f"cluster {self.name}")
        self._task.add_done_callback(lambda _: ended())

    def aim(self, target: MemberCluster | None) -> None:
        """Work in the cluster as it is described now; leave it if that is None."""
        if _revision(target) != _revision(self._target):
            self._target = target
            self._changed.set()

    def leave(self, grace: float) -> asyncio.Task[None]:
        """Leave the cluster since the process ends. Return the task that does it."""
        self._grace, self._last = grace, True
        self.aim(None)
        assert self._task is not None
        return self._task

    def kill(self) -> asyncio.Task[None]:
        """Stop as in a crash. Return the task that ends."""
        assert self._task is not None
        self._task.cancel()
        return self._task

    @property
    def stuck(self) -> list[str]:
        """The runs that ignored their cancellation, after the end."""
        if self._task is not None and not self._task.done():
            return [f"cluster {self.name}"]
        return self._left_behind

    @property
    def ended(self) -> bool:
        """True once the cluster has been left for good."""
        return self._task is not None and self._task.done()

    @property
    def idle(self) -> bool:
        return self.run.idle if self.run is not None else bool(self._trouble)

    def result(self) -> HealthCheckResult:
        """Return the state of this cluster. Trouble is reported, and leaves the process ready."""
        if self.run is not None:
            return self.run.summary()
        text = self._trouble or ("connecting" if self._target is not None else "leaving")
        return HealthCheckResult(ok=True, degraded=bool(self._trouble), text=text)

    # -- the task ----------------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        structlog.contextvars.bind_contextvars(
            cluster=self.name
        )  # on each log line of the tasks started here
        while (target := self._target) is not None:
            self._changed.clear()
            failures = 0
            while not self._changed.is_set():
                try:
                    await self._visit(target)
                except Exception as error:
                    failures += 1
                    self._trouble = f"{type(error).__name__}: {error}"
                    _log.error("cannot work in a cluster, it is tried again", error=self._trouble)
                    await self._pause(_BACKOFF.delay(failures))

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    async def _visit(self, target: MemberCluster) -> None:
        """Connect, and work until the provider says something else about the cluster."""
        client = target.connect(self._clock)
        try:
            uid = await self._unless_changed(cluster_uid(client))
            if uid is not None and await self._enter(uid):
                try:
                    await self._stay(uid, client)
                finally:
                    self._occupancy.leave(uid)
        finally:
            await client.close()

    async def _enter(self, uid: str) -> bool:
        """Wait until no other member works in the cluster. Return False if the provider says something else first."""
        while not self._changed.is_set():
            other = self._occupancy.occupant(uid)
            if other is None:
                self._occupancy.enter(uid, self.name)
                return True
            self._trouble = f"this is the cluster {other}, too: it waits until {other} has left"
            _log.warning("cluster waits: the operator works there under another name", other=other)
            await self._unless_changed(self._occupancy.wait_until_left(uid))
        return False

    async def _stay(self, uid: str, client: Client) -> None:
        try:
            self.run = self._engage(self.name, uid, client, self._metrics.add_cluster(self.name))
            self._trouble = ""
            _log.info("cluster added", address=client.cluster)
            await self._work(self.run)
        finally:
            self.run = None
            self._metrics.remove_cluster(self.name)

    async def _unless_changed(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Return the result of `work`; None if the provider says something else about the cluster before it ends."""
        result, changed = asyncio.create_task(work), asyncio.create_task(self._changed.wait())
        try:
            await asyncio.wait((result, changed), return_when=asyncio.FIRST_COMPLETED)
            return result.result() if result.done() else None
        finally:
            result.cancel()
            changed.cancel()
            await asyncio.gather(result, changed, return_exceptions=True)

    async def _work(self, run: ClusterRun) -> None:
        try:
            await self._changed.wait()
            # A cluster that comes back must not have a second run of a resource, so this waits for the first.
            # Only when the process ends anyway, a run that ignores its cancellation is left behind.
            await run.stop(grace=self._grace, give_up=self._last)
            self._left_behind = run.stuck
        except asyncio.CancelledError:
            await run.kill()
            raise
        finally:
            await run.close()
        _log.info("cluster left")


def _revision(target: MemberCluster | None) -> str | None:
    return None if target is None else target.revision
