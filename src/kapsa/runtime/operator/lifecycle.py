"""The life cycle of a running operator: its parts put together, started and stopped in order.

Start: probes, election, caches. Each controller starts once this process leads and the controller's own
watches have delivered a whole list that was requested after that: a cache that was good once may have missed
what another leader wrote. Stop: no more work is accepted, running reconciles may finish, then the lease is
released, then the caches stop. A controller whose kind is not served waits without holding up the others. A
process that does not lead keeps its caches warm.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from kapsa.runtime.cache.cache import Cache
from kapsa.runtime.cache.informer import Informer, State
from kapsa.runtime.client.client import Client
from kapsa.runtime.clock import SystemClock
from kapsa.runtime.controller.apply.applier import Applier
from kapsa.runtime.controller.events import EventRecorder
from kapsa.runtime.controller.reconciler import Reconciler
from kapsa.runtime.controller.services import Services
from kapsa.runtime.errors import ClientError
from kapsa.runtime.generate.rbac import grants
from kapsa.runtime.operator.access_review import MissingRule, missing_rules
from kapsa.runtime.operator.declaration import Companion, EveryReplica, OperatorDeclaration
from kapsa.runtime.operator.election import Elector
from kapsa.runtime.telemetry.health import Check, HealthCheckResult, HealthChecks, ProbeServer
from kapsa.runtime.telemetry.loop_watch import LoopWatch
from kapsa.runtime.telemetry.metrics import Metrics
from kapsa.runtime.telemetry.tracing import Tracing
from kapsa.runtime.webhooks.webhooks import WebhookRoute

if TYPE_CHECKING:
    from kapsa.runtime.webhooks.server import WebhookServer

__all__ = ["RunningOperator"]

_log = structlog.get_logger(__name__)

_RIGHTS_RETRY_SECONDS = 10.0
_FIRST_ATTEMPT_SECONDS = 2.0
"""The longest wait for the first attempt to take the lease. Then the watches start anyway."""


class RunningOperator:
    """One run of an operator in this process. Created by `Operator.start`."""

    def __init__(
        self,
        operator: OperatorDeclaration,
        client: Client,
        *,
        identity: str,
        rng: random.Random,
        namespaces: Sequence[str] | None = None,
        serve: bool = True,
        webhook_route: WebhookRoute | None = None,
    ) -> None:
        self.operator = operator
        """The declaration that runs."""
        self._serve = serve
        self.identity = identity
        """The name of this process in the lease and in events."""
        self.metrics = Metrics()
        """The Prometheus metrics of this run."""
        self.health = HealthChecks()
        """The liveness and readiness checks of this run."""
        self._raw_client = client
        self._clock = client.clock
        self.elector = self._make_elector(rng)
        """The candidate of this process in the leader election; None without election."""
        gate = self.elector.gate if self.elector is not None else None
        self.client = client.derive(field_manager=operator.field_manager, before_write=gate)
        """The client of the controllers. It refuses writes while this process does not hold the lease."""
        self._namespaces = operator.namespaces if namespaces is None else tuple(namespaces)
        self.cache = Cache(
            client, namespaces=self._namespaces, follow_manager=operator.field_manager, rng=rng
        )
        """The cache of all watched kinds."""
        self.recorder = EventRecorder(
            self.client,
            controller=operator.name,
            instance=identity,
            rng=rng,
            count=lambda outcome: self.metrics.events.labels(outcome).inc(),
        )
        """The recorder of events."""
        tracing = Tracing.find(self._clock)
        if tracing is not None:
            client.observe(tracing.request)
        applier = Applier(self.cache, manager=operator.field_manager)
        self.reconcilers = [
            Reconciler(
                controller,
                Services.of(
                    controller.declared,
                    client=self.client,
                    cache=self.cache,
                    applier=applier,
                    recorder=self.recorder,
                    metrics=self.metrics.controller(controller.name),
                ),
                tracing=tracing,
            )
            for controller in operator.controllers
        ]
        """One reconciler, with its work queue, for each controller."""
        self.probes = ProbeServer(
            self.health,
            self.metrics,
            host=operator.host,
            metrics_port=operator.metrics_port,
            health_port=operator.health_port,
            metrics_path=operator.metrics_path,
            liveness_path=operator.liveness_path,
            readiness_path=operator.readiness_path,
        )
        """The server of probes and metrics; `probes.ports` holds the actual ports."""
        self.webhooks = self._make_webhooks(webhook_route)
        """The webhook server; None without webhooks."""
        self.loop_watch: LoopWatch | None = None
        """The watchdog of the event loop; None on a virtual clock."""
        self._companions = contextlib.AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False
        self.missing_rights: list[MissingRule] = []
        """Declared rights that were not granted when this run started."""

    def _make_elector(self, rng: random.Random) -> Elector | None:
        election = self.operator.leader_election
        if election is None:
            return None
        gauge = self.metrics.leader.labels(election.name)
        return Elector(self._ungated_client(), election, identity=self.identity, rng=rng, on_change=gauge.set)

    def _ungated_client(self) -> Client:
        return self._raw_client.derive(field_manager=self.operator.field_manager)

    def _make_webhooks(self, route: WebhookRoute | None) -> WebhookServer | None:
        if self.operator.webhooks is None or not (self._serve or route):
            return None
        # Imported here, so that an operator without webhooks loads no web server.
        from kapsa.runtime.webhooks.server import WebhookServer

        return WebhookServer(
            self.operator.webhooks,
            self.client,
            operator=self.operator.name,
            observe=self.metrics.observe_webhook,
            route=route,
        )

    # -- starting ----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start every part. Returns before the caches are synced. Called by `Operator.start`."""
        _log.info(
            "operator starts",
            operator=self.operator.name,
            cluster=self._raw_client.cluster or "in this process",
            namespaces=", ".join(self._namespaces) or "all",
        )
        self._raw_client.observe(self.metrics.observe_call)
        self.metrics.watch_queues(self.reconcilers)
        self.metrics.watch_informers(lambda: self.cache.informers, self._clock.monotonic)
        if (collect := self.operator.collect) is not None:
            self.metrics.watch(lambda: collect(self.cache))
        self._declare_health()
        if self._serve:
            await self.probes.start()
            _log.info("served", **{f"{what}_port": port for what, port in self.probes.ports.items()})
        if isinstance(self._clock, SystemClock):  # on a virtual clock the loop stands still by design
            self._watch_loop()
        for companion in self.operator.companions:
            await self._companions.enter_async_context(self._companion(companion))
        self.recorder.start()
        if self.elector is None:
            self.cache.start()
        else:
            self.elector.start()
            self._spawn(self._start_cache(self.elector), "cache start")
        if self.webhooks is not None:
            await self.webhooks.start()
        self._spawn(self._report_hanging_watches(), "sync report")
        if self.operator.check_rights and self._serve:
            self._spawn(self._report_missing_rights(), "rights report")
        for reconciler in self.reconcilers:
            self._spawn(self._run_controller(reconciler), f"controller {reconciler.name}")

    def _companion(self, declared: Companion | EveryReplica) -> contextlib.AbstractAsyncContextManager[Any]:
        if isinstance(declared, EveryReplica):
            return declared.companion(self._ungated_client())
        return declared(self.client)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.append(asyncio.create_task(work, name=name))

    def _watch_loop(self) -> None:
        self.loop_watch = LoopWatch(
            limit=self.operator.loop_limit,
            on_lag=self.metrics.lag.set,
            on_blocked=lambda stack: self.metrics.blocked.inc(),
        )
        self.loop_watch.start()

    async def _start_cache(self, elector: Elector) -> None:
        """Start the watches after the first attempt to take the lease: a new leader then lists once, not twice."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_ATTEMPT_SECONDS):
                await elector.attempted.wait()
        self.cache.start()

    async def _run_controller(self, reconciler: Reconciler) -> None:
        elector = self.elector
        if elector is None:
            await reconciler.wait_until_synced()
            self._start_controller(reconciler)
            return
        while True:
            await elector.wait_until_leading()
            lost = asyncio.create_task(elector.wait_until_lost())
            fresh = asyncio.create_task(self._confirm_watches(reconciler, elector.leading_since))
            try:
                await asyncio.wait((lost, fresh), return_when=asyncio.FIRST_COMPLETED)
                if fresh.done() and not lost.done():
                    self._start_controller(reconciler)
                await lost
            finally:
                lost.cancel()
                fresh.cancel()
            await reconciler.stop(grace=0)

    def _start_controller(self, reconciler: Reconciler) -> None:
        _log.info("controller started", controller=reconciler.name)
        reconciler.start()

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
        await self._clock.sleep(self.operator.sync_timeout)
        for reconciler in self.reconcilers:
            for informer in reconciler.waiting_for:
                _log.error(
                    "watch hangs: its controller does not work until it has delivered its first list",
                    controller=reconciler.name,
                    watch=str(informer.scope),
                    seconds=self.operator.sync_timeout,
                    why=informer.trouble or informer.describe(),
                )

    async def _report_missing_rights(self) -> None:
        rights = msgspec.structs.replace(self.operator.rights(), namespaces=self._namespaces)
        declared = grants(rights, namespace=self._raw_client.namespace)
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

    async def stop(self, *, grace: float | None = None) -> None:
        """Accept no more work, let running reconciles finish, release the lease, stop the rest.

        Safe to call again.
        """
        if self._stopping:
            return
        self._stopping = True
        grace = self.operator.shutdown_grace if grace is None else grace
        await self._cancel_tasks()
        await asyncio.gather(*(reconciler.stop(grace=grace, give_up=True) for reconciler in self.reconcilers))
        await self.recorder.stop()
        if self.webhooks is not None:  # while this process may still write
            await self.webhooks.withdraw()
        if self.elector is not None:
            # A run that goes on must find the gate closed before another process leads.
            await (self.elector.abandon() if self.stuck else self.elector.stop())
        await self._stop_rest()

    async def kill(self) -> None:
        """Stop at once without cleaning up, as in a crash: no last write, and the lease is not released."""
        self._stopping = True
        await self._cancel_tasks()
        await asyncio.gather(*(reconciler.stop(grace=0) for reconciler in self.reconcilers))
        await self.recorder.stop(seconds=0)
        if self.elector is not None:
            await self.elector.abandon()
        await self._stop_rest()

    async def _cancel_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def _stop_rest(self) -> None:
        if self.webhooks is not None:
            await self.webhooks.stop()
        await self.cache.stop()
        await self._companions.aclose()
        await self.probes.stop()
        if self.loop_watch is not None:
            await self.loop_watch.stop()

    @property
    def stuck(self) -> list[str]:
        """The names of runs that ignored their cancellation and still go on, after a stop."""
        return [name for reconciler in self.reconcilers for name in reconciler.stuck]

    # -- state -------------------------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """True if no reconcile runs or is due and no event waits to be sent. Delayed keys do not count."""
        return self.recorder.idle and all(
            reconciler.queue.idle
            and (reconciler.working or reconciler.waiting_for or self.elector is not None)
            for reconciler in self.reconcilers
        )

    async def wait_until_synced(self) -> None:
        """Wait until every watch has delivered its first list."""
        for reconciler in self.reconcilers:
            await reconciler.wait_until_synced()

    def _declare_health(self) -> None:
        self.health.live["event loop"] = self._loop_result
        for informer in self.cache.informers:
            self.health.ready[f"watch {informer.scope}"] = _watch_check(informer)
        for reconciler in self.reconcilers:
            self.health.ready[f"controller {reconciler.name}"] = _controller_check(reconciler)
        if self.elector is not None:
            self.health.ready["leader election"] = self._election_result
        if self.webhooks is not None:
            self.health.ready["webhooks"] = self._webhook_result

    def _loop_result(self) -> HealthCheckResult:
        watch = self.loop_watch
        if watch is None:
            return HealthCheckResult(ok=True)
        stalled = max(watch.lag, watch.stalled)
        if stalled > watch.limit:
            return HealthCheckResult(ok=False, text=f"blocked for {stalled:.1f} s")
        return HealthCheckResult(ok=True, text=f"lag {watch.lag * 1000:.0f} ms")

    def _election_result(self) -> HealthCheckResult:
        leads = self.elector is not None and self.elector.is_leader
        if self.elector is not None and self.elector.trouble and not leads:
            return HealthCheckResult(ok=False, text=f"cannot take the lease: {self.elector.trouble}")
        return HealthCheckResult(ok=True, text="leading" if leads else "standing by, caches warm")

    def _webhook_result(self) -> HealthCheckResult:
        server = self.webhooks
        assert server is not None
        where = f"served on port {server.port}" if server.port else "not served yet"
        return HealthCheckResult(ok=server.ready.is_set() or server.port > 0, text=server.trouble or where)


def _watch_check(informer: Informer) -> Check:
    def check() -> HealthCheckResult:
        missing = informer.state is State.MISSING and informer.required and informer.installable
        return HealthCheckResult(
            ok=informer.synced.is_set() or missing, text=informer.describe(), degraded=missing
        )

    return check


def _controller_check(reconciler: Reconciler) -> Check:
    def check() -> HealthCheckResult:
        waiting = reconciler.waiting_for
        if not waiting:
            if reconciler.working and (stale := reconciler.stale):
                why = "; ".join(f"{informer.scope}: {informer.describe()}" for informer in stale)
                return HealthCheckResult(ok=False, text=f"stopped, its cache is too old to act on: {why}")
            return HealthCheckResult(ok=True, text="working" if reconciler.working else "standing by")
        missing = all(informer.state is State.MISSING and informer.installable for informer in waiting)
        why = "; ".join(
            f"{informer.scope}: {informer.trouble or informer.state.value}" for informer in waiting
        )
        return HealthCheckResult(ok=missing, text=f"waits for {why}", degraded=missing)

    return check
