"""Faults on command: which request goes wrong, how, and a record of every request made.

A :class:`FaultPlan` is handed to a devcluster. Rules match requests by verb, resource, object and client; each acts
on the nth match, before the write is committed or after. The same plan drives the embedded engine and the proxy
before a real one.
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
    """Answer with an error instead: 409, 429 (with ``retry_after``), 500, 504 or any other code."""

    code: int
    reason: str = ""
    message: str = ""
    retry_after: int | None = None


class Drop(msgspec.Struct, frozen=True):
    """Close the connection without an answer."""


class Delay(msgspec.Struct, frozen=True):
    """Wait before going on."""

    seconds: float


class Crash(msgspec.Struct, frozen=True):
    """The client dies here: no answer now, and nothing more is served to it until :meth:`FaultPlan.revive`."""


class Compact(msgspec.Struct, frozen=True):
    """Forget the history up to now: old watches and continue tokens get 410."""


class Freeze(msgspec.Struct, frozen=True):
    """Serve reads from here on as they were at this moment, until :meth:`FaultPlan.thaw`; watches wait."""

    client: str = ""
    """Whose reads are stale; everybody's when empty."""


class Silence(msgspec.Struct, frozen=True):
    """The watch stays open and says nothing more."""


class Cut(msgspec.Struct, frozen=True):
    """The watch ends without a word."""


class Duplicate(msgspec.Struct, frozen=True):
    """The event is sent twice."""


class Expire(msgspec.Struct, frozen=True):
    """The watch (or list) gets 410 Gone now."""


Action = Answer | Drop | Delay | Crash | Compact | Freeze | Silence | Cut | Duplicate | Expire
_STREAM_ACTIONS = (Silence, Cut, Duplicate, Expire)


Order = Silence | Cut | Expire
"""What can be done to a watch at any time, not only when it sends."""


class RequestTarget(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a request is about."""

    verb: str
    group: str = ""
    resource: str = ""
    """With the subresource after a slash, as in ``pods/status``."""
    namespace: str = ""
    name: str = ""
    client: str = ""


class RequestRecord(msgspec.Struct, kw_only=True, gc=False):
    """One request as it happened."""

    number: int
    verb: str
    group: str
    resource: str
    namespace: str
    name: str
    client: str
    status: int = 0
    """0 while it is under way, and for one that got no answer."""

    @property
    def is_write(self) -> bool:
        return self.verb not in ("get", "list", "watch", "")


class FaultRule(msgspec.Struct, kw_only=True):
    """When something goes wrong. Fields left empty match everything."""

    action: Action
    verb: str = ""
    """get, list, watch, create, update, patch, delete, deletecollection; ``write`` for any of the last five."""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    client: str = ""
    nth: int = 1
    """Acts on the nth matching request (or event), counted from 1."""
    times: int = 1
    """How many matches in a row it acts on; 0 for all from the nth on."""
    when: When = "before"
    """Before the request does anything, or after its commit and before its answer."""
    seen: int = 0
    """Matches so far."""
    fired: int = 0
    """How often it has acted."""

    def matches(self, target: RequestTarget) -> bool:
        """Whether the rule is about this request."""
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
        """Count a match; whether the rule acts on it."""
        self.seen += 1
        if self.seen < self.nth or (self.times and self.fired >= self.times):
            return False
        self.fired += 1
        return True


class OpenWatch:
    """A watch under way, and what the plan has ordered for it."""

    def __init__(self, plan: FaultPlan, target: RequestTarget) -> None:
        self.target = target
        self.ordered = asyncio.Event()
        self.order: Order | None = None
        self._plan = plan

    def give(self, order: Order) -> None:
        self.order = order
        self.ordered.set()

    async def thawed(self) -> None:
        """Wait while the client's reads are frozen."""
        await self._plan.thawed(self.target.client)


class FaultPlan:
    """Rules, the clients that have crashed, and what was asked."""

    def __init__(self, *rules: FaultRule) -> None:
        self._rules: list[FaultRule] = list(rules)
        self.records: list[RequestRecord] = []
        """Every request so far, in order of arrival."""
        self._crashes: dict[str, asyncio.Event] = {}
        self._frozen: dict[str, int] = {}
        self._thaw = asyncio.Event()
        self._watches: list[OpenWatch] = []

    # Setting up

    def add(self, rule: FaultRule) -> FaultRule:
        """Add a rule while requests go on."""
        self._rules.append(rule)
        return rule

    def clear(self) -> None:
        """Forget all rules; what has crashed stays crashed, what is frozen thaws."""
        self._rules.clear()
        self.thaw()

    # Crashing

    def crash(self, client: str) -> None:
        """A client dies now: its watches end, and it is served no more."""
        self.crash_event(client).set()
        self.order(Cut(), client=client)

    def revive(self, client: str) -> None:
        """Let a crashed client be served again: its process has been restarted."""
        self._crashes.pop(client, None)

    def crash_event(self, client: str) -> asyncio.Event:
        """An event that is set when the client crashes; the harness waits for it and ends the client."""
        return self._crashes.setdefault(client, asyncio.Event())

    @property
    def crashed(self) -> frozenset[str]:
        """The clients that have crashed and were not revived."""
        return frozenset(client for client, event in self._crashes.items() if event.is_set())

    def is_crashed(self, client: str) -> bool:
        """Whether this client is dead and was not revived."""
        event = self._crashes.get(client)
        return event is not None and event.is_set()

    # Freezing

    def freeze(self, revision: int, client: str = "") -> None:
        """Serve a client's reads (everybody's, when it is empty) from one revision."""
        self._frozen[client] = revision
        self._thaw.clear()

    def thaw(self) -> None:
        """Serve current reads again; held watches go on."""
        self._frozen.clear()
        self._thaw.set()

    def frozen_for(self, client: str) -> int | None:
        """The revision this client's reads are served from, while they are frozen."""
        if not self._frozen:
            return None
        return self._frozen.get(client, self._frozen.get(""))

    async def thawed(self, client: str) -> None:
        """Wait while this client's reads are frozen."""
        while self.frozen_for(client) is not None:
            await self._thaw.wait()

    # Watches

    def watch_opened(self, target: RequestTarget) -> OpenWatch:
        """Told by the server: a watch begins."""
        watch = OpenWatch(self, target)
        self._watches.append(watch)
        return watch

    def watch_closed(self, watch: OpenWatch) -> None:
        """Told by the server: a watch has ended."""
        self._watches.remove(watch)

    def order(self, order: Order, *, resource: str = "", client: str = "") -> int:
        """Cut, silence or expire the open watches that match, now; how many there were."""
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
        """What happens to a request at this moment."""
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
        """What happens to a watch as it is about to send an event."""
        if not self._rules:
            return []
        return [
            rule.action
            for rule in self._rules
            if isinstance(rule.action, _STREAM_ACTIONS) and rule.matches(target) and rule.due()
        ]

    # Recording

    def record(self, target: RequestTarget) -> RequestRecord:
        """Write down a request that has arrived."""
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
        """The recorded writes, of one client or of all."""
        return (
            record
            for record in self.records
            if record.is_write and (client is None or record.client == client)
        )

    def count(self, **fields: Any) -> int:
        """How many recorded requests have these fields: ``count(verb="create", resource="pods")``."""
        return sum(
            all(getattr(record, field) == value for field, value in fields.items()) for record in self.records
        )
