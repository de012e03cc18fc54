"""The operator: which controllers run, where, and with what. It is a declaration; `run` or `start` makes it live.

operator = Operator(controllers=[MyAppController()], leader_election="my-operator-lock")

# kapsa run myapp:operator
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from prometheus_client.core import Metric

from kapsa.runtime.cache.cache import Cache
from kapsa.runtime.client.client import Client
from kapsa.runtime.controller.controller import Controller, check_declaration
from kapsa.runtime.generate.rbac import OperatorRights, WebhookRights
from kapsa.runtime.operator.election import LeaderElection
from kapsa.runtime.operator.lifecycle import RunningOperator
from kapsa.runtime.resources.resource import CustomResource

if TYPE_CHECKING:
    from kapsa.runtime.webhooks.server import Route
    from kapsa.runtime.webhooks.webhooks import Webhooks

__all__ = ["Operator"]

Collect: TypeAlias = Callable[[Cache], Iterable[Metric]]
"""Metrics of an operator's own, made from its cache when somebody asks."""
Companion: TypeAlias = Callable[[Client], contextlib.AbstractAsyncContextManager[Any]]
"""Something that runs as long as the operator does, with a client that writes whether or not this process leads."""


class Operator:
    """What runs together in one process. It holds no state of a run: the same operator can run many times."""

    def __init__(
        self,
        *,
        controllers: Sequence[Controller[Any]],
        name: str = "",
        namespaces: Sequence[str] = (),
        leader_election: LeaderElection | str | None = None,
        webhooks: Webhooks | None = None,
        collect: Collect | None = None,
        companions: Sequence[Companion] = (),
        metrics_port: int | None = 8080,
        health_port: int | None = 8081,
        metrics_path: str = "/metrics",
        liveness_path: str = "/healthz",
        readiness_path: str = "/readyz",
        host: str = "0.0.0.0",  # noqa: S104 - the kubelet and Prometheus come from outside the pod
        check_rights: bool = True,
        sync_timeout: float = 120.0,
        shutdown_grace: float = 30.0,
        loop_limit: float = 2.0,
    ) -> None:
        """
        :param controllers: what runs.
        :param name: in events and as the field manager of all writes; from the lease or the first controller if empty.
        :param namespaces: the namespaces to look at; all if empty.
        :param leader_election: the lease's name, or all its settings; None if there is only ever one process.
        :param webhooks: validating, mutating and conversion webhooks, and where they are reached.
        :param collect: more metrics: called with the cache whenever somebody asks for them.
        :param companions: what else runs as long as the operator does, such as a server or a pool of connections.
        :param metrics_port: where metrics are served; None for nowhere, 0 for any free port.
        :param health_port: where the probes are served; may be the same as `metrics_port`.
        :param metrics_path: the path of the metrics.
        :param liveness_path: the path of the liveness probe.
        :param readiness_path: the path of the readiness probe.
        :param host: the address to listen on.
        :param check_rights: whether to ask the API server at start for the rights that are declared.
        :param sync_timeout: seconds after which a watch without a first list is reported.
        :param shutdown_grace: seconds that running reconciles get to finish at the end.
        :param loop_limit: seconds without a turn after which the event loop is reported as blocked.
        """
        self.controllers = tuple(controllers)
        for controller in self.controllers:
            check_declaration(controller)
        if isinstance(leader_election, str):
            leader_election = LeaderElection(name=leader_election)
        self.leader_election = leader_election
        self.name = name or self._default_name()
        self.namespaces = tuple(namespaces)
        self.webhooks = webhooks
        self.collect = collect
        self.companions = tuple(companions)
        self.metrics_port = metrics_port
        self.health_port = health_port
        self.metrics_path = metrics_path
        self.liveness_path = liveness_path
        self.readiness_path = readiness_path
        self.host = host
        self.check_rights = check_rights
        self.sync_timeout = sync_timeout
        self.shutdown_grace = shutdown_grace
        self.loop_limit = loop_limit
        self._check_names()
        self._check_paths()

    def _check_paths(self) -> None:
        paths = (self.metrics_path, self.liveness_path, self.readiness_path)
        for path in paths:
            if not path.startswith("/"):
                raise ValueError(f"{path!r} is no path: it begins with a slash")
        if len(set(paths)) < len(paths):
            raise ValueError(f"metrics and probes need a path each, not {', '.join(paths)}")

    def _default_name(self) -> str:
        if self.leader_election is not None:
            return self.leader_election.name
        return f"{self.controllers[0].name}-operator" if self.controllers else "operator"

    def _check_names(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_./]{0,126}[A-Za-z0-9])?", self.name):
            raise ValueError(f"{self.name!r} cannot name an operator: use letters, digits, dashes and dots")
        seen: set[str] = set()
        for controller in self.controllers:
            if controller.name in seen:
                raise ValueError(
                    f"two controllers are called {controller.name!r}: give one of them another name, "
                    "since metrics and finalizers are told apart by it"
                )
            seen.add(controller.name)

    @property
    def field_manager(self) -> str:
        """Who owns the fields that this operator applies."""
        return self.name

    @property
    def resources(self) -> list[type[CustomResource[Any, Any]]]:
        """The custom resources that the controllers are about: what CRDs are made of."""
        kinds = (controller.resource for controller in self.controllers)
        found = (kind for kind in kinds if isinstance(kind, type) and issubclass(kind, CustomResource))
        return list(dict.fromkeys(found))

    def rights(self) -> OperatorRights:
        """What this operator may do to a cluster, from what it declares."""
        election = self.leader_election
        return OperatorRights(
            controllers=tuple(controller.rights() for controller in self.controllers),
            namespaces=self.namespaces,
            lease=election.name if election is not None else "",
            lease_namespace=election.namespace if election is not None else "",
            webhooks=self.webhooks.rights(self.name) if self.webhooks is not None else WebhookRights(),
        )

    # -- running -----------------------------------------------------------------------------------------------

    async def start(
        self,
        client: Client,
        *,
        identity: str = "",
        rng: random.Random | None = None,
        namespaces: Sequence[str] | None = None,
        serve: bool = True,
        webhook_route: Route | None = None,
    ) -> RunningOperator:
        """Start in the present event loop. `client` says which cluster, and which clock.

        `serve=False` listens on no port and asks for no rights, as a simulation needs it; with a `webhook_route` the
        webhooks are answered there all the same.
        """
        rng = rng or random.Random()  # noqa: S311 - spreads load and names things apart
        identity = identity or f"{socket.gethostname()}_{rng.getrandbits(64):016x}"
        running = RunningOperator(
            self,
            client,
            identity=identity,
            rng=rng,
            namespaces=namespaces,
            serve=serve,
            webhook_route=webhook_route,
        )
        try:
            await running.start()
        except BaseException:
            await running.stop(grace=0)
            raise
        return running

    @contextlib.asynccontextmanager
    async def running(self, client: Client, **options: Any) -> AsyncIterator[RunningOperator]:
        """Run for the length of an `async with` block; the options are those of `start`."""
        run = await self.start(client, **options)
        try:
            yield run
        finally:
            await run.stop()

    async def serve(self, client: Client | None = None, **options: Any) -> None:
        """Run until SIGTERM or SIGINT, then stop in order."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        try:
            async with (
                client or Client.connect(field_manager=self.field_manager) as connected,
                self.running(connected, **options),
            ):
                await stop.wait()
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    def run(self, **options: Any) -> None:
        """Run as this process's only work; returns after SIGTERM or SIGINT."""
        try:
            import uvloop
        except ImportError:
            asyncio.run(self.serve(**options))
        else:
            uvloop.run(self.serve(**options))
