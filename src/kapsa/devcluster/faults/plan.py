"""Fault plans: rules that make requests fail, and a record of each request.

A `FaultPlan` is passed to a devcluster. Rules match requests by verb, resource, object and client; each acts on the
nth match, before the write is committed or after. The same plan drives the embedded engine and the proxy in front of
a real one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

__all__ = [
    "Answer",
    "Compact",
    "Crash",
    "Cut",
    "Delay",
    "Drop",
    "Duplicate",
    "Expire",
    "FaultPlan",
    "FaultRule",
    "Freeze",
    "OpenWatch",
    "RequestRecord",
    "RequestTarget",
    "Silence",
]

When = Literal["before", "after"]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Reply with an error: 409, 429 (with `retry_after`), 500, 504 or any other code."""

    code: int
    reason: str = ""
    message: str = ""
    retry_after: int | None = None


class Drop(msgspec.Struct, frozen=True):
    """Close the connection without a reply."""


class Delay(msgspec.Struct, frozen=True):
    """Wait before the next step of the request."""

    seconds: float


class Crash(msgspec.Struct, frozen=True):
    """Crash the client: it gets no reply to this request or to later ones until `FaultPlan.revive`."""


class Compact(msgspec.Struct, frozen=True):
    """Compact the history: older watches and continue tokens get 410."""


class Freeze(msgspec.Struct, frozen=True):
    """Serve reads from the current revision until `FaultPlan.thaw`; watches deliver nothing meanwhile."""

    client: str = ""
    """The client whose reads are stale; empty for all clients."""


class Silence(msgspec.Struct, frozen=True):
    """Keep the watch open and deliver nothing more."""


class Cut(msgspec.Struct, frozen=True):
    """End the watch without an error."""


class Duplicate(msgspec.Struct, frozen=True):
    """Deliver the event twice."""


class Expire(msgspec.Struct, frozen=True):
    """End the watch with 410 Gone."""


Action = Answer | Drop | Delay | Crash | Compact | Freeze | Silence | Cut | Duplicate | Expire
_STREAM_ACTIONS = (Silence, Cut, Duplicate, Expire)


Order = Silence | Cut | Expire
"""Actions on a watch that are possible at any time, not only when it delivers an event."""


class RequestTarget(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The verb, object and client of a request."""

    verb: str
    group: str = ""
    resource: str = ""
    """Plural name, with the subresource after a slash, as in `pods/status`."""
    namespace: str = ""
    name: str = ""
    client: str = ""


class RequestRecord(msgspec.Struct, kw_only=True, gc=False):
    """One request and its outcome."""

    number: int
    verb: str
    group: str
    resource: str
    namespace: str
    name: str
    client: str
    status: int = 0
    """Status code of the reply; 0 until there is one."""

    @property
    def is_write(self) -> bool:
        """True if the request changes objects."""
        return self.verb not in ("get", "list", "watch", "")


class FaultRule(msgspec.Struct, kw_only=True):
    """A fault, and the requests it applies to. An empty field matches every request."""

    action: Action
    verb: str = ""
    """get, list, watch, create, update, patch, delete, deletecollection; `write` for any of the last five."""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    client: str = ""
    nth: int = 1
    """The first match that the rule acts on, counted from 1. For a watch, matches are events."""
    times: int = 1
    """Number of matches in a row that the rule acts on; 0 for all from the nth on."""
    when: When = "before"
    """Before the request does anything, or after its commit and before its reply."""
    seen: int = 0
    """Number of matches so far."""
    fired: int = 0
    """Number of times the rule has acted."""

    def matches(self, target: RequestTarget) -> bool:
        """Return whether the rule applies to a request."""
        return (
            self._verb_matches(target.verb)
            and self.resource in ("", target.resource)
            and self.namespace in ("", target.namespace)
            and self.name in ("", target.name)
            and self.client in ("", target.client)
        )

    def _verb_matches(self, verb: str) -> bool:
        if self.verb == "write":
            return verb in ("create", "update", "patch", "delete", "deletecollection")
        return self.verb in ("", verb)

    def due(self) -> bool:
        """Count a match and return whether the rule acts on it."""
        self.seen += 1
        if self.seen < self.nth or (self.times and self.fired >= self.times):
            return False
        self.fired += 1
        return True


class OpenWatch:
    """An open watch, and the order that the plan gave it."""

    def __init__(self, plan: FaultPlan, target: RequestTarget) -> None:
        self.target = target
        self.ordered = asyncio.Event()
        self.order: Order | None = None
        self._plan = plan

    def give(self, order: Order) -> None:
        """Set the order and wake the watch."""
        self.order = order
        self.ordered.set()

    async def thawed(self) -> None:
        """Wait until the client's reads are no longer frozen."""
        await self._plan.thawed(self.target.client)


class FaultPlan:
    """Rules for requests that fail, the clients that crashed, and a record of all requests."""

    def __init__(self, *rules: FaultRule) -> None:
        self._rules: list[FaultRule] = list(rules)
        self.records: list[RequestRecord] = []
        """All requests so far, in order of arrival."""
        self._crashes: dict[str, asyncio.Event] = {}
        self._frozen: dict[str, int] = {}
        self._thaw = asyncio.Event()
        self._watches: list[OpenWatch] = []

    # Setting up

    def add(self, rule: FaultRule) -> FaultRule:
        """Add a rule, at any time."""
        self._rules.append(rule)
        return rule

    def remove(self, rule: FaultRule) -> None:
        """Remove a rule that `add` returned."""
        self._rules.remove(rule)

    def clear(self) -> None:
        """Remove all rules and thaw reads. Crashed clients stay crashed."""
        self._rules.clear()
        self.thaw()

    # Crashing

    def crash(self, client: str) -> None:
        """Crash a client: end its watches and serve it no more."""
        self.crash_event(client).set()
        self.order(Cut(), client=client)

    def revive(self, client: str) -> None:
        """Serve a crashed client again, as after a restart of its process."""
        self._crashes.pop(client, None)

    def crash_event(self, client: str) -> asyncio.Event:
        """Return an event that is set when the client crashes, so that a test can stop it."""
        return self._crashes.setdefault(client, asyncio.Event())

    @property
    def crashed(self) -> frozenset[str]:
        """The crashed clients, without revived ones."""
        return frozenset(client for client, event in self._crashes.items() if event.is_set())

    def is_crashed(self, client: str) -> bool:
        """Return whether a client has crashed and was not revived."""
        event = self._crashes.get(client)
        return event is not None and event.is_set()

    # Freezing

    def freeze(self, revision: int, client: str = "") -> None:
        """Serve the reads of a client (empty: of all clients) from one revision."""
        self._frozen[client] = revision
        self._thaw.clear()

    def thaw(self) -> None:
        """Serve current reads again and resume held watches."""
        self._frozen.clear()
        self._thaw.set()

    def frozen_for(self, client: str) -> int | None:
        """Return the revision that a client's reads are served from; None if they are not frozen."""
        if not self._frozen:
            return None
        return self._frozen.get(client, self._frozen.get(""))

    async def thawed(self, client: str) -> None:
        """Wait until a client's reads are no longer frozen."""
        while self.frozen_for(client) is not None:
            await self._thaw.wait()

    # Watches

    def watch_opened(self, target: RequestTarget) -> OpenWatch:
        """Record that a watch has begun."""
        watch = OpenWatch(self, target)
        self._watches.append(watch)
        return watch

    def watch_closed(self, watch: OpenWatch) -> None:
        """Record that a watch has ended."""
        self._watches.remove(watch)

    def order(self, order: Order, *, resource: str = "", client: str = "") -> int:
        """Cut, silence or expire the matching open watches. Return how many there were."""
        matching = [
            watch
            for watch in self._watches
            if resource in ("", watch.target.resource) and client in ("", watch.target.client)
        ]
        for watch in matching:
            watch.give(order)
        return len(matching)

    # Acting

    def due(self, target: RequestTarget, when: When) -> list[Action]:
        """Return the actions that are due for a request."""
        if not self._rules:
            return []
        return [
            rule.action
            for rule in self._rules
            if rule.when == when
            and not isinstance(rule.action, _STREAM_ACTIONS)
            and rule.matches(target)
            and rule.due()
        ]

    def due_on_event(self, target: RequestTarget) -> list[Action]:
        """Return the actions that are due for the next event of a watch."""
        if not self._rules:
            return []
        return [
            rule.action
            for rule in self._rules
            if isinstance(rule.action, _STREAM_ACTIONS) and rule.matches(target) and rule.due()
        ]

    # Recording

    def record(self, target: RequestTarget) -> RequestRecord:
        """Record a request that has arrived."""
        record = RequestRecord(
            number=len(self.records) + 1,
            verb=target.verb,
            group=target.group,
            resource=target.resource,
            namespace=target.namespace,
            name=target.name,
            client=target.client,
        )
        self.records.append(record)
        return record

    def writes(self, client: str | None = None) -> Iterator[RequestRecord]:
        """Return the recorded writes, of one client or of all."""
        return (
            record
            for record in self.records
            if record.is_write and (client is None or record.client == client)
        )

    def count(self, **fields: Any) -> int:
        """Count the recorded requests with these fields: `count(verb="create", resource="pods")`."""
        return sum(
            all(getattr(record, field) == value for field, value in fields.items()) for record in self.records
        )
