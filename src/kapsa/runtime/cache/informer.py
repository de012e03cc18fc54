"""The informer: one list and one watch of a kind, kept running, that feed a store and notify handlers.

States and their transitions:

    IDLE ──start──▶ LISTING ──whole list swapped in──▶ WATCHING ──stream ends──▶ WATCHING, from where it was
                      ▲  │                               │  │
                      │  │ error                   error │  └─410 Gone, silence, older version──▶ LISTING
                      │  ▼             or 410 repeatedly ▼
                      ├── BACKING_OFF ◀──────────────────┘      then LISTING, or WATCHING if the version is known
                      └── MISSING        the cluster does not serve the kind (yet); then LISTING
    any ──refresh──▶ LISTING
    any ──stop──▶ STOPPED

LISTING streams the initial state over the watch itself where the server supports it (`sendInitialEvents`),
and reads pages elsewhere. The store serves the previous state until the new list is complete.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import random
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import msgspec
import structlog

from kapsa.runtime.cache.object_parser import ObjectParser, Transform, key_and_version
from kapsa.runtime.cache.store import Store
from kapsa.runtime.client.client import Client
from kapsa.runtime.client.discovery import BUILT_IN_GROUPS, missing_kind
from kapsa.runtime.client.reader import WatchOptions
from kapsa.runtime.client.watch import Bookmark, WatchEvent
from kapsa.runtime.errors import (
    BadRequest,
    ClientError,
    Expired,
    Invalid,
    NotFound,
    TransportError,
    UnknownKind,
)
from kapsa.runtime.resources.kind import Kind
from kapsa.runtime.resources.metadata import GroupVersionKind
from kapsa.runtime.resources.stored_object import Change, StoredObject, version_number

__all__ = ["Informer", "Selection", "State", "WatchScope"]

_log = structlog.get_logger(__name__)

Handler = Callable[[Change], None]

WATCH_SECONDS = (300.0, 600.0)
"""The range of the random time after which a watch ends, so that watches do not end together."""
BACKOFF_SECONDS = (0.8, 30.0)
"""The range of waits after a failure.

Each is random, the first one too, so that watches do not return together.
"""
SILENCE_SECONDS = 150.0
"""The longest silence of a stream with bookmarks: the API server sends one about every minute."""
GRACE_SECONDS = 15.0
"""The time that a stream without bookmarks may stay open after its time-out."""
RELIST_AFTER_FAILURES = 6
"""The number of failures in a row after which a watch is not resumed but starts again with a list."""
LIST_SILENCE_SECONDS = 30.0
"""The longest silence of a streaming list; after it the list is read in pages instead."""


class State(enum.Enum):
    """The state of an informer. The module's docstring shows the transitions."""

    IDLE = "idle"
    LISTING = "listing"
    WATCHING = "watching"
    BACKING_OFF = "backing off"
    MISSING = "missing"
    STOPPED = "stopped"


Selection = tuple[str, str, bool]
"""The labels, the fields and the `metadata_only` of a watch."""


class WatchScope(msgspec.Struct, frozen=True):
    """The objects that one informer watches. Equal scopes share one watch."""

    gvk: GroupVersionKind
    namespace: str = ""
    labels: str = ""
    fields: str = ""
    metadata_only: bool = False

    @property
    def selection(self) -> Selection:
        """The part of the scope that a controller declares; the operator adds the namespace."""
        return self.labels, self.fields, self.metadata_only

    def __str__(self) -> str:
        text = str(self.gvk)
        if self.namespace:
            text += f" in {self.namespace}"
        for selector in (self.labels, self.fields):
            if selector:
                text += f" where {selector}"
        return f"{text} (metadata only)" if self.metadata_only else text


class _SilentWatchError(Exception):
    """Nothing arrived for longer than a working watch is silent."""


class _RestoredServerError(Exception):
    """The server has gone back to an older version, as after a restore of etcd."""


class Informer:
    """A watch that keeps a store in step with the cluster and calls handlers for every change, in order."""

    def __init__(
        self,
        client: Client,
        scope: WatchScope,
        *,
        kind: Kind | None = None,
        transform: Transform | None = None,
        follow_manager: str = "",
        rng: random.Random | None = None,
    ) -> None:
        self.scope = scope
        self.store = Store()
        self.state = State.IDLE
        self.transform = transform
        self.synced = asyncio.Event()
        """Set once the first whole list is in the store; it stays set."""
        self.required = True
        """True if a controller needs the kind.

        Otherwise a cluster that does not serve it counts as having no objects.
        """
        self.trouble = ""
        """A human-readable reason for not watching; empty while it is."""
        self.relists = 0
        self.restarts = 0
        """Restarts of a watch that had become silent."""
        self.parse = ObjectParser(
            scope.gvk.api_version,
            scope.gvk.kind,
            follow_manager=follow_manager,
            transform=transform,
            metadata_only=scope.metadata_only,
        )
        self._client = client
        self._clock = client.clock
        self._kind: Kind = kind if kind is not None else str(scope.gvk)
        self._rng = rng or random.Random()  # noqa: S311 - spreads load, guards nothing
        self._handlers: list[Handler] = []
        self._task: asyncio.Task[None] | None = None
        self._version = ""
        self._can_stream_lists = True
        self._failures = 0
        self._expiries = 0
        """Watches in a row that expired before they delivered anything."""
        self._bookmarks = False
        self.last_progress = self._clock.monotonic()
        """The time of the last event, on the clock's monotonic time."""
        self.listed_at = float("-inf")
        """The time at which the last whole list was requested: the store has every change from before it."""
        self._list_requested_at = float("-inf")
        self._list_wanted_at = float("-inf")
        """The time since which a list must have been requested; until one is complete, no watch is resumed."""
        self._listed = asyncio.Event()
        self._interruption: asyncio.Timeout | None = None

    # -- use -------------------------------------------------------------------------------------------------

    def add_handler(self, handler: Handler) -> None:
        """Call `handler` for every change from now on, and for the stored objects as initial changes."""
        self._handlers.append(handler)
        for stored in self.store:
            self._notify(handler, Change(None, stored, initial=True))

    def start(self) -> None:
        """Start to list and watch, in the background."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"informer {self.scope}")

    async def stop(self) -> None:
        """Stop the watch. The store keeps its objects."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._interruption = None
        self.state = State.STOPPED

    def refresh(self, since: float) -> None:
        """List again, now, unless the last list was requested after this monotonic time."""
        self._list_wanted_at = max(self._list_wanted_at, since)
        if max(self.listed_at, self._list_requested_at) >= since:
            return
        interruption = self._interruption
        if interruption is not None and interruption.when() is None:  # else it is interrupted already
            interruption.reschedule(asyncio.get_running_loop().time())

    async def wait_until_listed(self, since: float) -> None:
        """Wait for a whole list that was requested after this monotonic time."""
        while self.listed_at < since:
            self._listed.clear()
            await self._listed.wait()

    @property
    def installable(self) -> bool:
        """True if a CustomResourceDefinition can add the kind; false for a group of Kubernetes itself."""
        return self.scope.gvk.group not in BUILT_IN_GROUPS

    @property
    def staleness(self) -> float:
        """The longest time, in seconds, for which the store may have missed a change.

        A stream that sends no bookmarks may be silent because nothing changes: it counts as fresh while it is
        open.
        """
        if self.state is State.WATCHING and not self._bookmarks:
            return 0.0
        return self._clock.monotonic() - self.last_progress

    @property
    def resource_version(self) -> str:
        """The version up to which the watch has delivered all changes."""
        return self._version

    def describe(self) -> str:
        """Return its state in one line, for people."""
        age = self._clock.monotonic() - self.last_progress
        text = f"{self.state.value}, {len(self.store)} objects, last progress {age:.0f} s ago"
        return f"{text}: {self.trouble}" if self.trouble else text

    # -- the state machine -----------------------------------------------------------------------------------

    async def _run(self) -> None:
        state = State.LISTING
        while True:
            if state is State.WATCHING and self.listed_at < self._list_wanted_at:
                state = State.LISTING  # the interruption came too late, or the list that it began has failed
            self.state = state
            try:
                async with asyncio.timeout(None) as interruption:
                    self._interruption = interruption
                    state = await self._enter(state)
            except asyncio.CancelledError:
                raise
            except Exception as error:
                state = State.LISTING if interruption.expired() else self._after(error)

    async def _enter(self, state: State) -> State:
        match state:
            case State.LISTING:
                self._list_requested_at = self._clock.monotonic()
                if self._can_stream_lists:
                    return await self._stream_list()
                return await self._page_list()
            case State.WATCHING:
                return await self._watch()
            case _:
                await self._clock.sleep(self._delay())
                return State.WATCHING if self._version else State.LISTING

    def _after(self, error: Exception) -> State:
        """Return the state that follows an error."""
        if isinstance(error, Expired) and self.state is State.WATCHING:
            self._version = ""
            self._expiries += 1
            if self._expiries == 1:
                _log.info("watch expired, listing again", watch=str(self.scope))
                return State.LISTING
            # A server that forgets faster than it lists would be asked for one list after another.
            self._failures = self._expiries - 2
        if isinstance(error, _RestoredServerError):
            _log.warning("server went back, listing again", watch=str(self.scope), versions=str(error))
            self._version = ""
            return State.LISTING
        if isinstance(error, _SilentWatchError):
            self.restarts += 1
            _log.warning("silent watch restarted", watch=str(self.scope), silence=str(error))
            self._version = (
                ""  # a server that went back accepts a later version, and delivers nothing from it
            )
            return State.LISTING
        if self.state is State.LISTING and self._can_stream_lists and isinstance(error, Invalid | BadRequest):
            _log.debug("server does not stream lists, reading pages", watch=str(self.scope), error=str(error))
            self._can_stream_lists = False
            return State.LISTING
        self._failures += 1
        missing = isinstance(error, UnknownKind) or (isinstance(error, NotFound) and error.resource_missing)
        if missing:
            self._version = ""
            before = self.trouble
            self.trouble = missing_kind(
                self.scope.gvk, self._client.discovery.kinds(self.scope.gvk.api_version)
            )
            self.last_progress = self._clock.monotonic()  # that there are none is known as of now
            if not self.required:
                self._complete_list()
            elif before != self.trouble:
                _log.warning(
                    "kind not served, its controllers wait for it", watch=str(self.scope), error=self.trouble
                )
            return State.MISSING
        if self._failures >= RELIST_AFTER_FAILURES:
            self._version = ""  # a server restored from a backup may never reach this version again
        trouble = self._describe_error(error)
        if trouble != self.trouble:
            _log.warning("watch failed", watch=str(self.scope), error=trouble)
        self.trouble = trouble
        return State.BACKING_OFF

    def _describe_error(self, error: Exception) -> str:
        if isinstance(error, ClientError):
            return str(error)
        _log.error("watch failed unexpectedly", watch=str(self.scope), exc_info=error)
        return f"{type(error).__name__}: {error}"

    def _delay(self) -> float:
        least, most = BACKOFF_SECONDS
        base = min(most / 2, least * 2.0 ** min(self._failures - 1, 16))
        return base * self._rng.uniform(1.0, 2.0)

    # -- listing ---------------------------------------------------------------------------------------------

    async def _stream_list(self) -> State:
        """Read the initial state over the watch itself, then continue the same stream as the watch."""
        listed: list[StoredObject] = []
        async with aclosing(self._open(send_initial_events=True)) as stream:
            try:
                async with asyncio.timeout(LIST_SILENCE_SECONDS) as silence:
                    async for event in stream:
                        silence.reschedule(asyncio.get_running_loop().time() + LIST_SILENCE_SECONDS)
                        if isinstance(event, WatchEvent):
                            self._collect(listed, event.object)
                        elif event.initial_events_end:
                            self._swap_in(listed, event.resource_version)
                            break
                    else:
                        raise TransportError("server closed the streaming list before it was complete")
            except TimeoutError:
                self._can_stream_lists = False
                raise TransportError(
                    f"streaming list was silent for {LIST_SILENCE_SECONDS:.0f} s; reading pages instead"
                ) from None
            self._bookmarks = True
            self.state = State.WATCHING
            return await self._follow(stream)

    async def _page_list(self) -> State:
        listed: list[StoredObject] = []
        page = await self._client.list(self._kind, into=bytes, **self._selection())
        for item in page.items:
            self._collect(listed, item)
        self._swap_in(listed, page.resource_version)
        return State.WATCHING

    def _collect(self, listed: list[StoredObject], raw: bytes) -> None:
        parsed = self._parse(raw)
        if parsed is None:  # it exists: a list without it would report it as deleted
            parsed = self._delivered(raw)
        if parsed is not None:
            listed.append(parsed)

    def _swap_in(self, listed: list[StoredObject], version: str) -> None:
        if self.synced.is_set():
            self.relists += 1
        changes = self.store.replace(listed, version)
        self._version = version
        self._progressed()
        self._complete_list()
        for change in changes:
            self._notify_all(change)

    def _complete_list(self) -> None:
        self.listed_at = self._list_requested_at
        self.synced.set()
        self._listed.set()

    # -- watching --------------------------------------------------------------------------------------------

    async def _watch(self) -> State:
        started = self._clock.monotonic()
        before = self._version
        async with aclosing(self._open(resource_version=self._version)) as stream:
            state = await self._follow(stream)
        if self._version == before and self._clock.monotonic() - started < 1.0:
            raise TransportError("server closed the watch immediately")
        return state

    async def _follow(self, stream: Any) -> State:
        """Process events until the stream ends, fails or falls silent."""
        loop = asyncio.get_running_loop()
        limit = SILENCE_SECONDS if self._bookmarks else WATCH_SECONDS[1] + GRACE_SECONDS
        last = loop.time()
        try:
            async with asyncio.timeout(limit) as silence:
                async for event in stream:
                    if loop.time() - last > 1.0:  # not for each event of a burst: that is too expensive
                        last = loop.time()
                        limit = SILENCE_SECONDS if self._bookmarks else limit
                        silence.reschedule(last + limit)
                    self._process(event)
        except TimeoutError:
            raise _SilentWatchError(f"nothing arrived for {limit:.0f} s") from None
        return State.WATCHING

    def _process(self, event: WatchEvent[bytes] | Bookmark) -> None:
        self._expiries = 0
        if isinstance(event, Bookmark):
            if 0 <= version_number(event.resource_version) < version_number(self._version):
                raise _RestoredServerError(f"from {self._version} to {event.resource_version}")
            self._bookmarks = True
            self._version = event.resource_version
            self.store.caught_up(event.resource_version)
            self._progressed()
            return
        parsed = self._parse(event.object)
        if parsed is None and event.type == "DELETED":
            parsed = self._delivered(event.object)
        if parsed is None:
            return
        changes = self.store.remove(parsed) if event.type == "DELETED" else self.store.upsert(parsed)
        self._version = parsed.resource_version
        self._progressed()
        for change in changes:
            self._notify_all(change)

    def _open(self, *, resource_version: str = "", send_initial_events: bool = False) -> Any:
        """Open a watch: either with the current state first, or from a version on."""
        options: WatchOptions = self._selection()
        options["timeout_seconds"] = round(self._rng.uniform(*WATCH_SECONDS))
        if send_initial_events:
            options["send_initial_events"] = True
        else:
            options["resource_version"] = resource_version
        return self._client.watch(self._kind, into=bytes, **options)

    def _selection(self) -> Any:
        options: dict[str, Any] = {}
        if self.scope.namespace:
            options["namespace"] = self.scope.namespace
        if self.scope.labels:
            options["label_selector"] = self.scope.labels
        if self.scope.fields:
            options["field_selector"] = self.scope.fields
        if self.scope.metadata_only:
            options["metadata_only"] = True
        return options

    # -- internals -------------------------------------------------------------------------------------------

    def _parse(self, raw: bytes) -> StoredObject | None:
        """Parse one object.

        Log one that cannot be parsed and return None, so that the others are still delivered.
        """
        try:
            return self.store.echo(raw) or self.parse(raw)
        except Exception as error:
            _log.exception(
                "object not cached",
                watch=str(self.scope),
                start=raw[:200].decode("utf-8", "replace"),
                error=str(error),
            )
            return None

    def _delivered(self, raw: bytes) -> StoredObject | None:
        """Return the last state that was delivered of an object that cannot be parsed; None if there is none."""
        with contextlib.suppress(msgspec.MsgspecError, RecursionError):
            return self.store.delivered_object(key_and_version(raw)[0])
        return None

    def _progressed(self) -> None:
        self.last_progress = self._clock.monotonic()
        if self._failures:
            _log.info("watch recovered", watch=str(self.scope))
            self._failures = 0
        self.trouble = ""

    def _notify_all(self, change: Change) -> None:
        for handler in self._handlers:
            self._notify(handler, change)

    def _notify(self, handler: Handler, change: Change) -> None:
        try:
            handler(change)
        except (Exception, asyncio.CancelledError):  # it awaits nothing, so a cancellation in it is not ours
            _log.exception("handler failed", watch=str(self.scope), object=str(change.object.key))
