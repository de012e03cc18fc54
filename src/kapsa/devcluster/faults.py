"""Faults on command: which request goes wrong, how, and a record of every request made.

A :class:`FaultPlan` is handed to a devcluster. Rules match requests by verb, resource, object and client; each acts
on the nth match, before the write is committed or after. The same plan drives the embedded engine and the proxy
before a real one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
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
    "Freeze",
    "Record",
    "Rule",
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
    """Serve reads from here on as they were at this moment, until :meth:`FaultPlan.thaw`."""


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


class Target(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a request is about."""

    verb: str
    group: str = ""
    resource: str = ""
    """With the subresource after a slash, as in ``pods/status``."""
    namespace: str = ""
    name: str = ""
    client: str = ""


class Record(msgspec.Struct, kw_only=True, gc=False):
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


class Rule(msgspec.Struct, kw_only=True):
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

    def matches(self, target: Target) -> bool:
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


class FaultPlan:
    """Rules, the clients that have crashed, and what was asked."""

    def __init__(self, *rules: Rule) -> None:
        self._rules: list[Rule] = list(rules)
        self._targets: dict[int, Target] = {}
        self.records: list[Record] = []
        """Every request so far, in order of arrival."""
        self.crashed: dict[str, asyncio.Event] = {}
        """Set for each client that has crashed; the harness waits for it and ends the client."""
        self.frozen: int | None = None
        """The revision reads are served from, while frozen."""
        self.compactions: list[Callable[[], None]] = []
        """How the server behind this plan forgets its history."""

    # Setting up

    def add(self, rule: Rule) -> Rule:
        """Add a rule while requests go on."""
        self._rules.append(rule)
        return rule

    def clear(self) -> None:
        """Forget all rules; what has crashed stays crashed, what is frozen thaws."""
        self._rules.clear()
        self.thaw()

    def thaw(self) -> None:
        """Serve current reads again."""
        self.frozen = None

    def revive(self, client: str) -> None:
        """Let a crashed client be served again: its process has been restarted."""
        self.crashed.pop(client, None)

    def crash(self, client: str) -> None:
        """A client dies now."""
        self.crash_event(client).set()

    def crash_event(self, client: str) -> asyncio.Event:
        """An event that is set when the client crashes."""
        return self.crashed.setdefault(client, asyncio.Event())

    def is_crashed(self, client: str) -> bool:
        event = self.crashed.get(client)
        return event is not None and event.is_set()

    # Acting

    def due(self, target: Target, when: When) -> list[Action]:
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

    def due_on_event(self, target: Target) -> list[Action]:
        """What happens to a watch as it is about to send an event."""
        if not self._rules:
            return []
        return [
            rule.action
            for rule in self._rules
            if isinstance(rule.action, _STREAM_ACTIONS) and rule.matches(target) and rule.due()
        ]

    # Recording

    def record(self, target: Target) -> Record:
        """Write down a request that has arrived."""
        record = Record(
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

    def writes(self, client: str | None = None) -> Iterator[Record]:
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
