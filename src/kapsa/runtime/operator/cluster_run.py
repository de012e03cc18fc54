"""The controllers of an operator at work in one cluster: client, cache, recorder and reconcilers, put together.

Each controller starts once this process leads and the controller's own watches have delivered a whole list that was
requested after that: a cache that was good once may have missed what another leader wrote. A controller whose kind is
not served waits without holding up the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from kapsa.runtime.cache.cache import Cache
from kapsa.runtime.cache.informer import Informer, State
from kapsa.runtime.client.client import Client
from kapsa.runtime.client.dispatch import UnansweredWrite, WriteGate
from kapsa.runtime.controller._source_runs import SourceRuns
from kapsa.runtime.controller._turn import Turn
from kapsa.runtime.controller.apply.applier import Applier
from kapsa.runtime.controller.controller import Controller
from kapsa.runtime.controller.events import EventRecorder
from kapsa.runtime.controller.reconciler import Reconciler
from kapsa.runtime.controller.services import Services
from kapsa.runtime.controller.work.shard import Shard
from kapsa.runtime.errors import ClientError
from kapsa.runtime.generate.rbac import OperatorRights, grants
from kapsa.runtime.operator.access_review import MissingRule, missing_rules
from kapsa.runtime.operator.declaration import OperatorDeclaration
from kapsa.runtime.operator.election import Elector
from kapsa.runtime.telemetry.health import Check, HealthCheckResult
from kapsa.runtime.telemetry.metrics import ClusterMetrics
from kapsa.runtime.telemetry.tracing import Tracing

if TYPE_CHECKING:
    from kapsa.runtime.controller.work.run_history import RunArchive

__all__ = ["ClusterRun", "Fence"]

_log = structlog.get_logger(__name__)

_RIGHTS_RETRY_SECONDS = 10.0
_FIRST_ATTEMPT_SECONDS = 2.0
"""The longest wait for the first attempt to take the lease. Then the watches start anyway."""
_CONFIRM_RETRY_SECONDS = 5.0
_REPORTED_TROUBLES = 3
"""Failed checks of one cluster that its summary lists."""


class Fence(msgspec.Struct, frozen=True):
    """The lease under which controllers work, and the keys that it is for."""

    elector: Elector | None = None
    """None: they may always work."""
    shard: Shard | None = None
    """None: they work on all keys."""


class ClusterRun:
    """The controllers of an operator in one cluster."""

    def __init__(
        self,
        operator: OperatorDeclaration,
        client: Client,
        *,
        controllers: Sequence[Controller[Any]],
        metrics: ClusterMetrics,
        fences: Sequence[Fence],
        gate: WriteGate | None,
        on_unanswered: UnansweredWrite | None,
        identity: str,
        rng: random.Random,
        namespaces: tuple[str, ...],
        turn: Turn,
        archive: RunArchive | None = None,
        cluster: str = "",
    ) -> None:
        self._operator = operator
        self._turn = turn
        self._archive = archive
        self._raw_client = client
        self._clock = client.clock
        self._namespaces = namespaces
        self.cluster = cluster
        """The name of the cluster; empty if the operator has only one."""
        self.metrics = metrics
        """The metrics of this cluster."""
        self.client = client.derive(
            field_manager=operator.field_manager, before_write=gate, on_unanswered=on_unanswered
        )
        """A client that refuses writes while this process holds no lease."""
        self.cache = Cache(client, namespaces=namespaces, follow_manager=operator.field_manager, rng=rng)
        """The cache of all watched kinds."""
        self.recorder = EventRecorder(
            # An event that arrives late does no harm, so it does not keep the lease. The last events of shards that
            # have been handed over are still sent.
            client.derive(
                field_manager=operator.field_manager,
                before_write=None if any(fence.shard for fence in fences) else gate,
            ),
            controller=operator.name,
            instance=identity,
            rng=rng,
            count=lambda outcome: metrics.events.labels(outcome).inc(),
        )
        """The recorder of events."""
        self._tracing = Tracing.find(self._clock)
        if self._tracing is not None:
            client.observe(self._tracing.request)
        self._applier = Applier(self.cache, manager=operator.field_manager)
        self._sources = {
            controller: SourceRuns(controller.name, controller.sources, self._clock)
            for controller in controllers
        }
        self._fences = {
            self._reconciler(controller, fence): fence for fence in fences for controller in controllers
        }
        self.reconcilers = list(self._fences)
        """One reconciler, with its work queue, for each controller; for each of its shards, if it has shards."""
        self._entered: set[Reconciler] = set()
        self.missing_rights: list[MissingRule] = []
        """Declared rights that were not granted when this run started."""
        self._tasks: list[asyncio.Task[None]] = []
        client.observe(metrics.observe_call)
        metrics.watch_queues(self.reconcilers)
        metrics.watch_informers(lambda: self.cache.informers, self._clock.monotonic)

    def _reconciler(self, controller: Controller[Any], fence: Fence) -> Reconciler:
        elector = fence.elector
        client = (
            self.client
            if elector is None
            else self.client.derive(before_write=elector.gate, on_unanswered=elector.doubt)
        )
        services = Services.of(
            controller.declared,
            client=client,
            cache=self.cache,
            applier=self._applier,
            recorder=self.recorder,
            metrics=self.metrics.controller(controller.name),
            cluster=self.cluster,
            shard=fence.shard,
        )
        reconciler = Reconciler(
            controller,
            services,
            turn=self._turn,
            sources=self._sources[controller],
            tracing=self._tracing,
        )
        if self._archive is not None:
            from kapsa.runtime.controller.work.run_history import RunHistory

            reconciler.history = RunHistory(self._archive, self._clock)
        return reconciler

    # -- starting ----------------------------------------------------------------------------------------------

    def start(self, *, rights: OperatorRights | None = None) -> None:
        """Start the watches, and each controller as soon as it may work.

        With `rights`, report those that are not granted.
        """
        self.recorder.start()
        electors = [
            each.elector for each in self._fences.values() if each.elector is not None and not each.shard
        ]
        if electors:
            self._spawn(self._start_cache(electors[0]), "cache start")
        else:
            self.cache.start()
        self._spawn(self._report_hanging_watches(), "sync report")
        if rights is not None:
            self._spawn(self._report_missing_rights(rights), "rights report")
        for reconciler, fence in self._fences.items():
            self._spawn(self._run_controller(reconciler, fence.elector), f"controller {reconciler.name}")

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.append(asyncio.create_task(work, name=name))

    async def _start_cache(self, elector: Elector) -> None:
        """Start the watches after the first attempt to take the lease: a new leader then lists once, not twice."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_ATTEMPT_SECONDS):
                await elector.attempted.wait()
        self.cache.start()

    async def _run_controller(self, reconciler: Reconciler, elector: Elector | None) -> None:
        if elector is None:
            await reconciler.wait_until_synced()
            self._start_controller(reconciler)
            return
        while True:
            await elector.wait_until_leading()
            self._entered.add(reconciler)
            elector.enter()
            lost = asyncio.create_task(elector.wait_until_lost())
            since = elector.leading_since
            fresh = asyncio.create_task(self._keep_confirming(reconciler, since))
            try:
                await asyncio.wait((lost, fresh), return_when=asyncio.FIRST_COMPLETED)
                # A start queues all resources, and all shards start after the same list.
                await self._turn.wait()
                if fresh.done() and not lost.done():
                    self._start_controller(reconciler, since=since)
                await lost
            finally:
                lost.cancel()
                fresh.cancel()
            # A hand-over waits until the work has ended.
            grace = self._operator.shutdown_grace if elector.handing_over else 0
            await self._stop_controller(reconciler, grace=grace)

    async def _stop_controller(self, reconciler: Reconciler, *, grace: float, give_up: bool = False) -> None:
        elector = self._fences[reconciler].elector
        if elector is not None and grace > 0:
            await _end_runs(reconciler, elector, grace=grace)
            grace = 0
        finished = await reconciler.stop(grace=grace, give_up=give_up)
        if elector is not None and reconciler in self._entered:
            self._entered.remove(reconciler)
            elector.leave(cut_short=not finished)

    def _start_controller(self, reconciler: Reconciler, *, since: float = float("-inf")) -> None:
        _log.info("controller started", controller=reconciler.name)
        reconciler.start(since=since)

    async def _keep_confirming(self, reconciler: Reconciler, since: float) -> None:
        """Confirm the watches, again after a failure: a leader whose controller never starts would look healthy."""
        while True:
            try:
                return await self._confirm_watches(reconciler, since)
            except Exception:
                _log.exception("watches not confirmed, trying again", controller=reconciler.name)
                await self._clock.sleep(_CONFIRM_RETRY_SECONDS)

    async def _confirm_watches(self, reconciler: Reconciler, since: float) -> None:
        """Wait until every watch of the controller has delivered a list that was requested since then."""
        outdated = [informer for informer in reconciler.informers if informer.listed_at < since]
        for informer in outdated:
            informer.refresh(since)
        if any(informer.synced.is_set() for informer in outdated):
            _log.info(
                "controller waits for its watches to catch up",
                controller=reconciler.name,
                watches=[str(informer.scope) for informer in outdated],
            )
        for informer in outdated:
            await informer.wait_until_listed(since)
        waited = self._clock.monotonic() - since
        if outdated:
            _log.info("watches caught up", controller=reconciler.name, seconds=round(waited, 3))

    async def _report_hanging_watches(self) -> None:
        """Report each watch that has delivered no first list after `sync_timeout`.

        The others work meanwhile.
        """
        await self._clock.sleep(self._operator.sync_timeout)
        for reconciler in self.reconcilers:
            for informer in reconciler.waiting_for:
                _log.error(
                    "watch hangs: its controller does not work until it has delivered its first list",
                    controller=reconciler.name,
                    watch=str(informer.scope),
                    seconds=self._operator.sync_timeout,
                    why=informer.trouble or informer.describe(),
                )

    async def _report_missing_rights(self, rights: OperatorRights) -> None:
        declared = grants(
            msgspec.structs.replace(rights, namespaces=self._namespaces),
            namespace=self._raw_client.namespace,
        )
        while True:
            try:
                lacking = await missing_rules(self._raw_client, declared)
                break
            except ClientError as error:
                if not error.retryable:
                    _log.warning("rights not checked", error=str(error))
                    return
            # The server is unreachable. The watches report that already.
            await self._clock.sleep(_RIGHTS_RETRY_SECONDS)
        self.missing_rights = lacking
        for rule in lacking:
            _log.error(
                "right missing: grant it, for instance with the output of `kapsa rbac`", rule=str(rule)
            )

    # -- stopping ----------------------------------------------------------------------------------------------

    async def stop(self, *, grace: float, give_up: bool) -> None:
        """Accept no more work and let running reconciles finish. The cache goes on until `close`.

        With `give_up`, a run that ignores its cancellation is left behind.
        """
        await self._cancel_tasks()
        await asyncio.gather(
            *(self._stop_controller(each, grace=grace, give_up=give_up) for each in self.reconcilers)
        )
        await self.recorder.stop()

    async def kill(self) -> None:
        """Stop at once, as in a crash: no last write."""
        await self._cancel_tasks()
        await asyncio.gather(*(self._stop_controller(each, grace=0) for each in self.reconcilers))
        await self.recorder.stop(seconds=0)

    async def close(self) -> None:
        """Stop the watches."""
        await self.cache.stop()

    async def _cancel_tasks(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- state -------------------------------------------------------------------------------------------------

    def fence(self, reconciler: Reconciler) -> Fence:
        """Return the lease and the shard of a reconciler of this run."""
        return self._fences[reconciler]

    @property
    def stuck(self) -> list[str]:
        """The names of runs that ignored their cancellation and still go on, after a stop."""
        return [name for reconciler in self.reconcilers for name in reconciler.stuck]

    @property
    def idle(self) -> bool:
        """True if no reconcile runs or is due and no event waits to be sent. Delayed keys do not count."""
        return self.recorder.idle and all(
            reconciler.queue.idle
            and (reconciler.working or reconciler.waiting_for or fence.elector is not None)
            for reconciler, fence in self._fences.items()
        )

    async def wait_until_synced(self) -> None:
        """Wait until every watch has delivered its first list."""
        for reconciler in self.reconcilers:
            await reconciler.wait_until_synced()

    def checks(self) -> Iterator[tuple[str, Check]]:
        """Yield the readiness checks of the watches and controllers, by name."""
        for informer in self.cache.informers:
            yield f"watch {informer.scope}", _watch_check(informer)
        for reconciler, fence in self._fences.items():
            part = f" shard {fence.shard.index}" if fence.shard is not None else ""
            yield f"controller {reconciler.name}{part}", self._controller_check(reconciler)

    def _controller_check(self, reconciler: Reconciler) -> Check:
        def check() -> HealthCheckResult:
            if outdated := self.catching_up(reconciler):
                return HealthCheckResult(ok=True, text=f"waits for {_scopes(outdated)} to catch up")
            return _controller_health(reconciler)

        return check

    def catching_up(self, reconciler: Reconciler) -> list[Informer]:
        """Return the watches without a list from this tenure: a controller that may work waits for them."""
        elector = self._fences[reconciler].elector
        if elector is None or not elector.is_leader or reconciler.working or reconciler.waiting_for:
            return []
        return [informer for informer in reconciler.informers if informer.listed_at < elector.leading_since]

    def summary(self) -> HealthCheckResult:
        """Return all checks as one. Trouble in one of many clusters is reported, and leaves the process ready."""
        results = [(name, check()) for name, check in self.checks()]
        troubles = [f"{name}: {result.text}" for name, result in results if not result.ok or result.degraded]
        if not troubles:
            working = any(reconciler.working for reconciler in self.reconcilers)
            return HealthCheckResult(ok=True, text="working" if working else "standing by")
        more = len(troubles) - _REPORTED_TROUBLES
        listed = troubles[:_REPORTED_TROUBLES] + ([f"and {more} more"] if more > 0 else [])
        return HealthCheckResult(ok=True, degraded=True, text="; ".join(listed))


async def _end_runs(reconciler: Reconciler, elector: Elector, *, grace: float) -> None:
    """Let running reconciles finish for `grace` seconds, or until the lease is lost: another process may work then."""
    ending = asyncio.create_task(reconciler.finish())
    lost = asyncio.create_task(elector.wait_until_closed())
    try:
        await asyncio.wait((ending, lost), timeout=grace, return_when=asyncio.FIRST_COMPLETED)
    finally:
        ending.cancel()
        lost.cancel()


def _watch_check(informer: Informer) -> Check:
    def check() -> HealthCheckResult:
        missing = informer.state is State.MISSING and informer.required and informer.installable
        return HealthCheckResult(
            ok=informer.synced.is_set() or missing, text=informer.describe(), degraded=missing
        )

    return check


def _scopes(informers: Sequence[Informer]) -> str:
    return ", ".join(str(informer.scope) for informer in informers)


def _controller_health(reconciler: Reconciler) -> HealthCheckResult:
    waiting = reconciler.waiting_for
    if not waiting:
        if reconciler.working and (stale := reconciler.stale):
            why = "; ".join(f"{informer.scope}: {informer.describe()}" for informer in stale)
            return HealthCheckResult(ok=False, text=f"stopped, its cache is too old to act on: {why}")
        return HealthCheckResult(ok=True, text="working" if reconciler.working else "standing by")
    missing = all(informer.state is State.MISSING and informer.installable for informer in waiting)
    why = "; ".join(f"{informer.scope}: {informer.trouble or informer.state.value}" for informer in waiting)
    return HealthCheckResult(ok=missing, text=f"waits for {why}", degraded=missing)
