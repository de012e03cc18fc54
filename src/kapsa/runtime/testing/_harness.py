"""The harness: a cluster, operators that run on it, and a way to wait until nothing is left to do."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from kapsa.devcluster import DevCluster, FaultPlan, VirtualClock
from kapsa.runtime.client.client import Client
from kapsa.runtime.client.dispatch import Call
from kapsa.runtime.clock import Clock, SystemClock
from kapsa.runtime.errors import NotFound
from kapsa.runtime.generate.audit import Audit
from kapsa.runtime.generate.crd import custom_resource_definitions
from kapsa.runtime.generate.rbac import grants
from kapsa.runtime.operator.lifecycle import RunningOperator
from kapsa.runtime.operator.operator import Operator
from kapsa.runtime.resources.conditions import Condition
from kapsa.runtime.resources.kind import Kind
from kapsa.runtime.resources.resource import CustomResource
from kapsa.runtime.testing._transport import InProcessTransport

__all__ = ["Harness", "NotSettledError", "RecordedCall"]

_NOT_STATE = {"leases", "events"}
_FAILED = ("error", "timeout", "terminal")
"""Resources that change without a change of state."""
WebhookHandler = Callable[[str, bytes], Awaitable[tuple[int, bytes]]]


class NotSettledError(AssertionError):
    """Objects kept changing for too long."""


class RecordedCall(msgspec.Struct, frozen=True):
    """A request that an operator made."""

    client: str
    call: Call
    status: int

    def __str__(self) -> str:
        call = self.call
        resource = f"{call.resource}/{call.subresource}" if call.subresource else call.resource
        key = "/".join(part for part in (call.namespace, call.name) if part)
        return f"{self.client}: {call.verb} {resource} {key} -> {self.status or 'no response'}"


class Harness:
    """A devcluster with operators running on it, their requests recorded.

    On an embedded devcluster with a virtual clock nothing here takes real time: `settle` passes hours in
    milliseconds.
    """

    def __init__(self, cluster: DevCluster, *, clock: Clock | None = None, seed: int = 0) -> None:
        self.cluster = cluster
        self.clock: Clock = clock or SystemClock()
        self.faults: FaultPlan | None = cluster.faults
        self.calls: list[RecordedCall] = []
        """All requests of the operators, in order."""
        self.running: dict[str, RunningOperator] = {}
        """The running operators, by their name in the fault plan."""
        self.observers: list[Callable[[RecordedCall], None]] = []
        """Called after each request of an operator."""
        self._seed = seed
        self._replicas: dict[str, list[WebhookHandler]] = {}
        self._clients: list[Client] = []
        self.client = self.connect("test")
        """An administrator's client, for the test itself."""

    # -- clients and operators ---------------------------------------------------------------------------------

    def connect(self, name: str, *, clock: Clock | None = None, **options: Any) -> Client:
        """Return a client with this name in the fault plan."""
        clock = clock or self.clock
        if self.cluster.engine == "embedded":
            # On virtual time a request takes a moment, too. Otherwise two managers that undo each other's
            # writes would go on forever in the same instant.
            latency = 0.001 if isinstance(clock, VirtualClock) else 0.0
            transport = InProcessTransport(self.cluster, client=name, latency=latency)
            client = Client(transport, clock=clock, **options)
        else:
            client = Client.connect(kubeconfig=self.cluster.kubeconfig, clock=clock, **options)
        self._clients.append(client)
        return client

    async def start(
        self,
        operator: Operator,
        *,
        name: str = "operator",
        clock_rate: float | None = None,
        namespaces: Sequence[str] | None = None,
    ) -> RunningOperator:
        """Start an operator. A second start under the same name models a restart of the same process."""
        clock = VirtualClock(rate=clock_rate) if clock_rate is not None else self.clock
        client = self.connect(name, clock=clock)
        client.observe(lambda call, status, _: self._record(RecordedCall(name, call, status)))
        self._seed += 1
        run = await operator.start(
            client,
            identity=f"{name}-{self._seed}",
            rng=random.Random(self._seed),  # noqa: S311 - repeatable on purpose
            namespaces=namespaces,
            serve=False,
            webhook_route=self._route_webhooks if self.cluster.engine == "embedded" else None,
        )
        self.running[name] = run
        return run

    def _route_webhooks(self, address: str, handler: WebhookHandler) -> None:
        """Route webhook calls to the first replica that is running, as a Service does, without a socket."""
        replicas = self._replicas.setdefault(address, [])
        if handler not in replicas:
            replicas.append(handler)

        async def any_replica(path: str, body: bytes) -> tuple[int, bytes]:
            await self.clock.sleep(0.001)
            for replica in replicas:
                with contextlib.suppress(ConnectionRefusedError):
                    return await replica(path, body)
            raise ConnectionRefusedError(f"no operator is running behind {address}")

        self.cluster.route_webhooks(address, any_replica)

    def _record(self, recorded: RecordedCall) -> None:
        self.calls.append(recorded)
        for observer in self.observers:
            observer(recorded)

    async def stop(self, name: str = "operator") -> None:
        """Stop an operator in order, as SIGTERM does."""
        await self.running.pop(name).stop()

    async def kill(self, name: str = "operator") -> None:
        """Stop an operator as a crash does."""
        await self.running.pop(name).kill()

    async def close(self) -> None:
        """Stop all operators and close all connections."""
        for name in list(self.running):
            await self.kill(name)
        for client in self._clients:
            await client.close()

    async def install(self, *targets: type[CustomResource[Any, Any]] | Operator) -> None:
        """Install the CRDs of these resources, or of all that an operator reconciles and converts.

        Only the CRDs of an operator have its conversion. Versions that differ need one: install the operator.
        """
        classes = tuple(target for target in targets if not isinstance(target, Operator))
        manifests = list(_definitions(classes))
        for target in targets:
            if isinstance(target, Operator):
                manifests += target.definitions(namespace=self.client.namespace)
        for manifest in manifests:
            await self.client.apply(manifest, force=True)

    async def apply(self, *manifests: Any) -> None:
        """Apply objects as a user would, with the field manager `person`."""
        for manifest in manifests:
            await self.client.apply(manifest, force=True, field_manager="person")

    # -- waiting -----------------------------------------------------------------------------------------------

    async def settle(
        self,
        *,
        quiet: float = 30.0,
        horizon: float = 600.0,
        limit: float = 86_400.0,
        max_writes: int = 10_000,
    ) -> None:
        """Wait until nothing is left to do.

        That is: no object has changed for `quiet` seconds, no operator has a reconcile to run, and delayed
        keys (a Requeue, a retry) have had `horizon` seconds to change something and have not. Leases and
        events do not count. Two managers that undo each other's writes never settle: `NotSettledError` is
        raised after `limit` seconds or `max_writes` writes.
        """
        started = changed = self.clock.monotonic()
        state = self._activity()
        calls = len(self.calls)
        calm = 0.0
        while True:
            await self.clock.sleep(0.5 if calm < 10 else 5.0)
            now = self.clock.monotonic()
            if (current := self._activity()) != state:
                state, changed = current, now
            calm = now - changed
            busy = [run for run in self.running.values() if not run.idle]
            delayed = any(r.queue.delayed for run in self.running.values() for r in run.reconcilers)
            if not busy and calm >= quiet and (not delayed or calm >= horizon):
                return
            if now - started > limit or sum(each.call.writes for each in self.calls[calls:]) > max_writes:
                raise NotSettledError(self._unsettled(now - started, busy))

    def _activity(self) -> int:
        """Return a count that grows whenever an object changes."""
        if self.cluster.engine == "embedded":
            return self.cluster.count_changes(ignore=_NOT_STATE)
        return len(self.writes())

    def _unsettled(self, seconds: float, busy: Iterable[RunningOperator]) -> str:
        recent = "".join(f"\n  {call}" for call in self.writes()[-10:])
        waiting = "".join(
            f"\n  {r.name}: {[str(i.key) for i in r.queue.in_flight]} running, {len(r.queue)} waiting"
            for run in busy
            for r in run.reconcilers
        )
        return f"not settled after {seconds:.0f} s. Last writes:{recent or ' none'}\nStill busy:{waiting or ' none'}"

    # -- assertions--------------------------------------------------------------------------------------------

    def writes(self, name: str | None = None) -> list[RecordedCall]:
        """Return the write requests of the operators, without leases and events."""
        return [
            each
            for each in self.calls
            if each.call.writes and each.call.resource not in _NOT_STATE and name in (None, each.client)
        ]

    def verify_rights(self, operator: Operator) -> list[str]:
        """Fail on a request that no declared right allows. Return the rights that no request used.

        The rights are those that `kapsa rbac` writes: an operator limited to namespaces has its rights only
        there. Call it once the operator has done everything that it can do.
        """
        audit = Audit()
        for recorded in self.calls:
            audit(recorded.call, recorded.status, 0)
        return audit.verify(grants(operator.rights(), namespace=self.client.namespace))

    def assert_no_failures(self) -> None:
        """Fail if a run of a running operator ended in an error, a time-out or a terminal error.

        `settle` waits until nothing is left to do; a resource that fails for ever backs off and does not keep it
        waiting.
        """
        failed = [
            f"{sample.labels['controller']}: {sample.value:.0f} × {sample.labels['result']}"
            for run in self.running.values()
            for metrics in (run.metrics, *(each.metrics for each in run.clusters.values()))
            for family in metrics.reconciliations.collect()
            for sample in family.samples
            if sample.name.endswith("_total") and sample.value and sample.labels["result"] in _FAILED
        ]
        if failed:
            raise AssertionError(f"runs failed: {', '.join(failed)}")

    async def get(self, kind: Kind, name: str, *, namespace: str = "default") -> Any:
        """Return an object from the cluster; None if it does not exist."""
        try:
            return await self.client.get(kind, name, namespace=namespace)
        except NotFound:
            return None

    async def condition(
        self, kind: type[CustomResource[Any, Any]], name: str, condition: str, *, namespace: str = "default"
    ) -> Condition | None:
        """Return a condition of a resource; None if it is not set."""
        resource = await self.client.get(kind, name, namespace=namespace)
        current: Condition | None = resource.status.condition(condition)
        return current

    async def assert_condition(
        self,
        kind: type[CustomResource[Any, Any]],
        name: str,
        condition: str,
        status: str = "True",
        *,
        reason: str | None = None,
        namespace: str = "default",
    ) -> Condition:
        """Fail unless the resource has this condition. The error lists the conditions it has."""
        resource = await self.client.get(kind, name, namespace=namespace)
        current = resource.status.condition(condition)
        if current is None or current.status != status or reason not in (None, current.reason):
            have = [f"{c.type}={c.status} ({c.reason}: {c.message})" for c in resource.status.conditions]
            expected = f"{condition}={status}" + (f" ({reason})" if reason else "")
            raise AssertionError(f"{resource}: expected {expected}, has {', '.join(have) or 'no conditions'}")
        assert isinstance(current, Condition)
        return current

    async def events(self, *, reason: str | None = None, name: str | None = None) -> list[Mapping[str, Any]]:
        """Return the recorded events, oldest first, optionally of one reason or about objects of one name."""
        listed = await self.client.list("events.k8s.io/v1/Event")
        events = [
            event
            for event in listed.items
            if reason in (None, event.get("reason"))
            and name in (None, (event.get("regarding") or {}).get("name"))
        ]
        return sorted(events, key=lambda event: str(event.get("eventTime")))

    async def assert_event(
        self, reason: str, *, text: str = "", name: str | None = None
    ) -> Mapping[str, Any]:
        """Fail unless an event of this reason, with this text in its note, was recorded.

        Return the last one.
        """
        await asyncio.sleep(0)
        matches = [
            event for event in await self.events(reason=reason, name=name) if text in event.get("note", "")
        ]
        if not matches:
            have = [f"{event['reason']}: {event.get('note', '')}" for event in await self.events()]
            raise AssertionError(f"no event {reason} with {text!r}; recorded: {have or 'none'}")
        return matches[-1]


@functools.lru_cache(maxsize=32)
def _definitions(resources: tuple[type[CustomResource[Any, Any]], ...]) -> list[dict[str, Any]]:
    """Return the CRDs, generated once: a sweep installs the same ones hundreds of times."""
    return custom_resource_definitions(resources)
