"""The life cycle of a running operator: its parts put together, started and stopped in order.

Start: probes, election, the work in each cluster. Stop: no more work is accepted, running reconciles may finish, then
the lease is released, then the caches stop. A process that does not lead keeps its caches warm.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import structlog

from kapsa.runtime.cache.cache import Cache
from kapsa.runtime.client.client import Client
from kapsa.runtime.client.dispatch import WriteGate
from kapsa.runtime.clock import SystemClock
from kapsa.runtime.controller._turn import Turn
from kapsa.runtime.controller.controller import Controller
from kapsa.runtime.controller.events import EventRecorder
from kapsa.runtime.controller.reconciler import Reconciler
from kapsa.runtime.operator._members import Members
from kapsa.runtime.operator.access_review import MissingRule
from kapsa.runtime.operator.cluster_run import ClusterRun, Fence
from kapsa.runtime.operator.declaration import Companion, EveryReplica, OperatorDeclaration
from kapsa.runtime.operator.election import Elector
from kapsa.runtime.operator.shard_leases import Shards
from kapsa.runtime.telemetry.health import HealthCheckResult, HealthChecks, ProbeServer
from kapsa.runtime.telemetry.loop_watch import LoopWatch
from kapsa.runtime.telemetry.metrics import ClusterMetrics, Metrics
from kapsa.runtime.webhooks.webhooks import WebhookRoute

if TYPE_CHECKING:
    from kapsa.runtime.controller.work.run_history import RunArchive
    from kapsa.runtime.operator.inspection import Inspection
    from kapsa.runtime.webhooks.server import WebhookServer

__all__ = ["RunningOperator"]

_log = structlog.get_logger(__name__)


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
        self.shards = self._make_shards(rng)
        """The shards of this replica; None without sharding."""
        self._rng = rng
        self._turn = Turn()
        self._archive = self._make_archive()
        self._namespaces = operator.namespaces if namespaces is None else tuple(namespaces)
        self._home = self._cluster_run(
            client,
            metrics=self.metrics,
            controllers=operator.controllers if operator.clusters is None else (),
        )
        self._members = self._make_members()
        self.inspection = self._make_inspection()
        """The inside of this run, for the debug endpoint; None without a debug port."""
        self.probes = ProbeServer(
            self.health,
            self.metrics,
            host=operator.host,
            metrics_port=operator.metrics_port,
            health_port=operator.health_port,
            metrics_path=operator.metrics_path,
            liveness_path=operator.liveness_path,
            readiness_path=operator.readiness_path,
            debug_port=operator.debug_port,
            debug_page=self.inspection.page if self.inspection is not None else None,
        )
        """The server of probes and metrics; `probes.ports` holds the actual ports."""
        self.webhooks = self._make_webhooks(webhook_route)
        """The webhook server; None without webhooks."""
        self.loop_watch: LoopWatch | None = None
        """The watchdog of the event loop; None on a virtual clock."""
        self._companions = contextlib.AsyncExitStack()
        self._stopping = False

    def _cluster_run(
        self,
        client: Client,
        *,
        metrics: ClusterMetrics,
        controllers: Sequence[Controller[Any]],
        cluster: str = "",
        uid: str = "",
    ) -> ClusterRun:
        return ClusterRun(
            self.operator,
            client,
            controllers=controllers,
            metrics=metrics,
            fences=self._fences(uid),
            gate=self._gate(),
            on_unanswered=self.elector.doubt if self.elector is not None else None,
            identity=self.identity,
            rng=self._rng,
            namespaces=self._namespaces,
            turn=self._turn,
            archive=self._archive,
            cluster=cluster,
        )

    def _make_members(self) -> Members | None:
        operator = self.operator
        if operator.clusters is None:
            return None
        return Members(
            operator.clusters,
            self._engage,
            metrics=self.metrics,
            health=self.health,
            clock=self._clock,
            grace=operator.shutdown_grace,
        )

    def _engage(self, cluster: str, uid: str, client: Client, metrics: ClusterMetrics) -> ClusterRun:
        """Start the controllers in a member cluster."""
        run = self._cluster_run(
            client, metrics=metrics, controllers=self.operator.controllers, cluster=cluster, uid=uid
        )
        self._start_run(run)
        return run

    def _start_run(self, run: ClusterRun) -> None:
        operator = self.operator
        if (collect := operator.collect) is not None and (run.cluster or operator.clusters is None):
            run.metrics.watch(lambda: collect(run.cache))
        checked = operator.check_rights and self._serve
        rights = operator.rights() if run.cluster else operator.home_rights()
        run.start(rights=rights if checked else None)

    @property
    def client(self) -> Client:
        """The client of the controllers, or of the operator's own cluster if it has `clusters`.

        It refuses writes while this process does not hold the lease.
        """
        return self._home.client

    @property
    def cache(self) -> Cache:
        """The cache of all watched kinds; empty if the operator has `clusters`: each has its own."""
        return self._home.cache

    @property
    def recorder(self) -> EventRecorder:
        """The recorder of events in the operator's own cluster."""
        return self._home.recorder

    @property
    def clusters(self) -> dict[str, ClusterRun]:
        """The run in each cluster that is connected, by name; empty for an operator of one cluster."""
        return self._members.runs if self._members is not None else {}

    @property
    def reconcilers(self) -> list[Reconciler]:
        """One reconciler, with its work queue, for each controller, in each cluster."""
        return [reconciler for run in self._runs for reconciler in run.reconcilers]

    @property
    def missing_rights(self) -> list[MissingRule]:
        """Declared rights that were not granted when this run started, in all clusters."""
        return [rule for run in self._runs for rule in run.missing_rights]

    @property
    def _runs(self) -> list[ClusterRun]:
        return [self._home, *self.clusters.values()]

    def _make_archive(self) -> RunArchive | None:
        if self.operator.debug_port is None:
            return None
        from kapsa.runtime.controller.work.run_history import RunArchive  # loaded only if somebody will look

        return RunArchive()

    def _make_inspection(self) -> Inspection | None:
        if self.operator.debug_port is None:
            return None
        from kapsa.runtime.operator.inspection import Inspection  # loaded only if somebody will look

        return Inspection(
            operator=self.operator.name,
            identity=self.identity,
            leads=lambda: self.elector.is_leader if self.elector is not None else None,
            shards=self.shards,
            runs=lambda: self._runs,
        )

    def _make_elector(self, rng: random.Random) -> Elector | None:
        election = self.operator.leader_election
        if election is None:
            return None
        gauge = self.metrics.leader.labels(election.name)
        return Elector(self._ungated_client(), election, identity=self.identity, rng=rng, on_change=gauge.set)

    def _make_shards(self, rng: random.Random) -> Shards | None:
        sharding = self.operator.sharding
        if sharding is None:
            return None
        leader = self.metrics.leader
        return Shards(
            self._ungated_client(),
            sharding,
            identity=self.identity,
            rng=rng,
            on_change=lambda lease, held: leader.labels(lease).set(held),
        )

    def _fences(self, uid: str) -> list[Fence]:
        shards = self.shards
        if shards is None:
            return [Fence(self.elector)]
        return [Fence(each, shards.shard(index, uid)) for index, each in enumerate(shards.electors)]

    def _gate(self) -> WriteGate | None:
        if self.shards is not None:
            return self.shards.gate
        return self.elector.gate if self.elector is not None else None

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
        self._declare_health()
        if self._serve:
            await self.probes.start()
            _log.info("served", **{f"{what}_port": port for what, port in self.probes.ports.items()})
        if isinstance(self._clock, SystemClock):  # on a virtual clock the loop stands still by design
            self._watch_loop()
        for companion in self.operator.companions:
            await self._companions.enter_async_context(self._companion(companion))
        if self.elector is not None:
            self.elector.start()
        if self.shards is not None:
            self.shards.start()
        self._start_run(self._home)
        if self._members is not None:
            self._members.start()
        if self.webhooks is not None:
            await self.webhooks.start()

    def _companion(self, declared: Companion | EveryReplica) -> contextlib.AbstractAsyncContextManager[Any]:
        if isinstance(declared, EveryReplica):
            return declared.companion(self._ungated_client())
        if self.shards is None:
            return declared(self.client)
        # Every replica holds shards, and exactly one of them the first.
        first = self.shards.electors[0]
        return declared(
            self._raw_client.derive(
                field_manager=self.operator.field_manager,
                before_write=first.gate,
                on_unanswered=first.doubt,
            )
        )

    def _watch_loop(self) -> None:
        self.loop_watch = LoopWatch(
            limit=self.operator.loop_limit,
            on_lag=self.metrics.lag.set,
            on_blocked=lambda stack: self.metrics.blocked.inc(),
        )
        self.loop_watch.start()

    # -- stopping ----------------------------------------------------------------------------------------------

    async def stop(self, *, grace: float | None = None) -> None:
        """Accept no more work, let running reconciles finish, release the lease, stop the rest.

        Safe to call again.
        """
        if self._stopping:
            return
        self._stopping = True
        grace = self.operator.shutdown_grace if grace is None else grace
        if self.webhooks is not None and self.shards is not None:  # while this process holds a shard
            await self.webhooks.withdraw()
        await asyncio.gather(
            *([self.shards.retire()] if self.shards is not None else []),
            self._home.stop(grace=grace, give_up=True),
            *([self._members.stop(grace=grace)] if self._members is not None else []),
        )
        if self.webhooks is not None and self.shards is None:  # while this process may still write
            await self.webhooks.withdraw()
        if self.elector is not None:
            # A run that goes on must find the gate closed before another process leads.
            await (self.elector.abandon() if self.stuck else self.elector.stop())
        if self.shards is not None:
            await (self.shards.abandon() if self.stuck else self.shards.stop())
        await self._stop_rest()

    async def kill(self) -> None:
        """Stop at once without cleaning up, as in a crash: no last write, and the lease is not released."""
        self._stopping = True
        await asyncio.gather(
            self._home.kill(), *([self._members.kill()] if self._members is not None else [])
        )
        if self.elector is not None:
            await self.elector.abandon()
        if self.shards is not None:
            await self.shards.abandon()
        await self._stop_rest()

    async def _stop_rest(self) -> None:
        if self.webhooks is not None:
            await self.webhooks.stop()
        await self._home.close()
        await self._companions.aclose()
        await self.probes.stop()
        if self.loop_watch is not None:
            await self.loop_watch.stop()

    @property
    def stuck(self) -> list[str]:
        """The names of runs that ignored their cancellation and still go on, after a stop."""
        return [*self._home.stuck, *(self._members.stuck if self._members is not None else [])]

    # -- state -------------------------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """True if no reconcile runs or is due and no event waits to be sent. Delayed keys do not count."""
        return self._home.idle and (self._members is None or self._members.idle)

    async def wait_until_synced(self) -> None:
        """Wait until every watch has delivered its first list."""
        for run in self._runs:
            await run.wait_until_synced()

    def _declare_health(self) -> None:
        self.health.live["event loop"] = self._loop_result
        self.health.ready.update(self._home.checks())
        if self._members is not None:
            self.health.ready["clusters"] = self._members.provider_result
        if self.elector is not None:
            self.health.ready["leader election"] = self._election_result
        if self.shards is not None:
            self.health.ready["sharding"] = self.shards.result
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
