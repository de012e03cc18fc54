"""Events for people: `events.k8s.io/v1`, with repetitions combined into series and a filter against spam.

Recording an event takes no time and cannot fail: it goes into a bounded buffer, which one task sends.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Self

import msgspec
import structlog

from kapsa.runtime.client.client import Client
from kapsa.runtime.errors import ClientError, NotFound
from kapsa.runtime.resources.metadata import GroupVersionKind
from kapsa.runtime.resources.stored_object import StoredObject

__all__ = ["EventRecorder", "ObjectReference"]

_log = structlog.get_logger(__name__)

BUFFER = 1000
"""The number of events that may wait to be sent. More are dropped: a reconcile never waits for them."""
SERIES_SECONDS = 360.0
"""The time between two writes of a series. A series without a repetition for this long ends."""
BURST, REFILL_SECONDS = 25, 300.0
"""The number of new events that one object may have at once, and the time until it may have one more."""
_TRACKED = 4096
_NOTE_LIMIT = 1024


class ObjectReference(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The object an event is about."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""

    @classmethod
    def of(cls, gvk: GroupVersionKind, stored: StoredObject) -> Self:
        """Return the reference to an object of the cache."""
        return cls(
            api_version=gvk.api_version,
            kind=gvk.kind,
            name=stored.name,
            namespace=stored.namespace,
            uid=stored.uid,
            resource_version=stored.resource_version,
        )


_Identity = tuple[str, str, str, str, str]


class _Series:
    """One event and its repetitions."""

    __slots__ = ("count", "due", "first", "identity", "last", "last_at", "name", "namespace", "written")

    def __init__(self, identity: _Identity, name: str, namespace: str, now: datetime, at: float) -> None:
        self.identity = identity
        self.name = name
        self.namespace = namespace
        self.count = self.written = 1
        self.first = self.last = now
        self.last_at = at
        self.due = at
        """The time from which a repetition is written at once.

        The first one is, since it makes the series visible.
        """


class EventRecorder:
    """A recorder of the events of one controller or operator."""

    def __init__(
        self,
        client: Client,
        *,
        controller: str,
        instance: str,
        rng: random.Random | None = None,
        count: Callable[[str], None] = lambda outcome: None,
    ) -> None:
        self._client = client
        self._clock = client.clock
        self._controller = controller
        self._instance = instance
        self._rng = rng or random.Random()  # noqa: S311 - names need to differ, not to be secret
        self._count = count
        self._series: OrderedDict[_Identity, _Series] = OrderedDict()
        self._tokens: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._waiting: deque[Callable[[], Any]] = deque()
        self._wake = asyncio.Event()
        self._written: deque[tuple[float, _Series]] = deque(maxlen=_TRACKED)
        """The series written recently, in order, each with the time of its next write."""
        self._any_written = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._sending = False

    @property
    def idle(self) -> bool:
        """True if nothing waits to be sent."""
        return not self._waiting and not self._sending

    def start(self) -> None:
        """Start to send, in the background."""
        if not self._tasks:
            self._tasks = [
                asyncio.create_task(self._send_all(), name=f"events of {self._controller}"),
                asyncio.create_task(self._catch_up(), name=f"event series of {self._controller}"),
            ]

    async def stop(self, *, seconds: float = 2.0) -> None:
        """Send the remaining events and counts of series, for a limited time, then stop."""
        tasks, self._tasks = self._tasks, []
        if not tasks:
            return
        for due, series in list(self._written):
            self._write_if_behind(due, series)
        deadline = self._clock.monotonic() + seconds
        while not self.idle and self._clock.monotonic() < deadline:
            await self._clock.sleep(0.05)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def event(
        self,
        regarding: ObjectReference,
        type: str,  # noqa: A002 - the event's own word
        reason: str,
        note: str,
        *,
        action: str = "Reconcile",
        related: ObjectReference | None = None,
    ) -> None:
        """Record an event. A repetition increments the series of the first one."""
        if type not in ("Normal", "Warning"):
            raise ValueError(f"event type must be Normal or Warning, got {type!r}")
        if not reason:
            raise ValueError("event reason must be one CamelCase word, got an empty string")
        note = note[:_NOTE_LIMIT]
        identity = (regarding.uid or f"{regarding.namespace}/{regarding.name}", type, reason, note, action)
        now, at = self._clock.now(), self._clock.monotonic()
        series = self._series.get(identity)
        if series is not None and at - series.last_at < SERIES_SECONDS:
            series.count += 1
            series.last, series.last_at = now, at
            if at >= series.due:
                self._write(series)
            return
        if not self._allowed(identity[0], at):
            self._count("filtered")
            return
        name = f"{regarding.name[:200]}.{self._rng.getrandbits(64):016x}"
        series = _Series(identity, name, regarding.namespace or "default", now, at)
        self._series[identity] = series
        self._series.move_to_end(identity)
        if len(self._series) > _TRACKED:
            self._series.popitem(last=False)
        body = self._body(series, regarding, type, reason, note, action, related)
        self._enqueue(lambda: self._create(body))

    def _write(self, series: _Series) -> None:
        """Write the count, and schedule the next write."""
        series.written = series.count
        series.due = self._clock.monotonic() + SERIES_SECONDS
        self._written.append((series.due, series))
        self._any_written.set()
        self._enqueue(lambda: self._update(series))

    def _write_if_behind(self, due: float, series: _Series) -> None:
        if due == series.due and series.count > series.written:  # otherwise it has been written since
            self._write(series)

    async def _catch_up(self) -> None:
        """Write the count of each series that has grown since its last write, once that is due."""
        while True:
            await self._any_written.wait()
            while self._written:
                due, series = self._written[0]
                if (wait := due - self._clock.monotonic()) > 0:
                    await self._clock.sleep(wait)
                    continue
                self._written.popleft()
                self._write_if_behind(due, series)
            self._any_written.clear()

    def _enqueue(self, send: Callable[[], Any]) -> None:
        if len(self._waiting) >= BUFFER:
            self._count("dropped")
            return
        self._waiting.append(send)
        self._wake.set()

    def _allowed(self, object_id: str, at: float) -> bool:
        tokens, then = self._tokens.get(object_id, (float(BURST), at))
        tokens = min(float(BURST), tokens + (at - then) / REFILL_SECONDS)
        allowed = tokens >= 1
        self._tokens[object_id] = (tokens - 1 if allowed else tokens, at)
        self._tokens.move_to_end(object_id)
        if len(self._tokens) > _TRACKED:
            self._tokens.popitem(last=False)
        return allowed

    def _body(
        self,
        series: _Series,
        regarding: ObjectReference,
        type: str,  # noqa: A002
        reason: str,
        note: str,
        action: str,
        related: ObjectReference | None,
    ) -> dict[str, Any]:
        body: dict[str, Any] = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": series.name, "namespace": series.namespace},
            "eventTime": _micro_time(series.first),
            "reportingController": self._controller,
            "reportingInstance": self._instance[:128],
            "action": action or "Reconcile",
            "reason": reason,
            "regarding": msgspec.to_builtins(regarding),
            "note": note,
            "type": type,
        }
        if related is not None:
            body["related"] = msgspec.to_builtins(related)
        return body

    async def _send_all(self) -> None:
        while True:
            while self._waiting:
                self._sending = True
                try:
                    await self._waiting.popleft()()
                    self._count("sent")
                except ClientError as error:
                    self._count("failed")
                    _log.debug("event not sent", error=str(error))
                except Exception:
                    self._count("failed")
                    _log.exception("event not sent")
                finally:
                    self._sending = False
            self._wake.clear()
            if not self._waiting:
                await self._wake.wait()

    async def _create(self, body: Mapping[str, Any]) -> None:
        await self._client.create(dict(body))

    async def _update(self, series: _Series) -> None:
        series.written = series.count
        patch = {"series": {"count": series.count, "lastObservedTime": _micro_time(series.last)}}
        try:
            await self._client.patch("events.k8s.io/v1/Event", series.name, patch, namespace=series.namespace)
        except NotFound:  # the server keeps events for an hour; the next repetition starts a new series
            if self._series.get(series.identity) is series:
                del self._series[series.identity]


def _micro_time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
