"""Watch: the changes of a collection from a position on, as a stream of events. The only watch loop of the engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

from kapsa.devcluster.embedded.codec.stored_form import with_revision
from kapsa.devcluster.embedded.requests.parameters import ListParameters
from kapsa.devcluster.embedded.storage.store import (
    Collection,
    CompactedError,
    ObjectStore,
    StoreChange,
    Stored,
)
from kapsa.devcluster.embedded.verbs.selection import Selection
from kapsa.devcluster.wire.status_errors import StatusError, expired
from kapsa.devcluster.wire.watch_events import encode_event, error_event
from kapsa.schemas.go_format import quote

__all__ = ["WatchStream", "too_old", "watch_revision"]

BOOKMARK_SECONDS = 60.0
LAST_BOOKMARK_SECONDS = 2.0
"""The time before its end at which a watch gets a last bookmark, from which the next one resumes."""
_LONGEST_REVISION = 19
_END_OF_LIST = "k8s.io/initial-events-end"

View = Callable[[Stored], bytes]
"""Encodes an object for one client."""


class WatchStream:
    """One client's watch. Its events come encoded, several at a time when the client lags."""

    def __init__(
        self,
        store: ObjectStore,
        collection: Collection,
        selection: Selection,
        parameters: ListParameters,
        *,
        bookmark: Callable[[int, dict[str, str]], bytes],
        view: View | None = None,
        prepare: Callable[[Iterable[Stored]], Awaitable[None]] | None = None,
        timeout: float,
    ) -> None:
        self._store = store
        self._collection = collection
        self._selection = selection
        self._parameters = parameters
        self._bookmark = bookmark
        self._view = view
        self._prepare = prepare
        self._timeout = timeout
        self._position = 0
        self._initial: list[Stored] = []
        self._list_revision = 0
        self._waiter: asyncio.Future[None] | None = None

    def open(self) -> None:
        """Set the starting position. Raises CompactedError when it is before the window."""
        parameters = self._parameters
        revision = parameters.resource_version
        start = watch_revision(revision)
        newest = revision in ("", "0")
        if parameters.send_initial_events or (parameters.send_initial_events is None and newest):
            self._initial = self._selection.filter(self._collection.current(self._selection.prefix))
            self._position = self._collection.end
            self._list_revision = self._store.revision
        elif newest:
            self._position = self._collection.end
        else:
            self._position = self._collection.position_after(start)

    async def events(self) -> AsyncIterator[bytes]:
        """Yield encoded events until the timeout, or an error when the watcher falls out of the window."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        bookmarks = self._parameters.allow_bookmarks
        next_bookmark = _next_bookmark(loop.time(), deadline)
        if self._initial or self._parameters.send_initial_events:
            if self._prepare is not None:
                await self._prepare(self._initial)
            yield self._initial_events()
        timer: asyncio.TimerHandle | None = None
        self._collection.watches += 1
        try:
            while True:
                try:
                    changes = self._collection.read(self._position)
                except CompactedError as error:
                    yield error_event(too_old(error))
                    return
                self._position += len(changes)
                if changes:
                    if self._prepare is not None:
                        await self._prepare([change.object for change in changes])
                    encoded = self._encode_changes(changes)
                    if encoded:
                        yield encoded
                    continue
                now = loop.time()
                if now >= deadline:
                    return
                if bookmarks and now >= next_bookmark:
                    next_bookmark = _next_bookmark(now, deadline)
                    yield encode_event("BOOKMARK", self._bookmark(self._store.revision, {}))
                    continue
                wake_at = min(deadline, next_bookmark) if bookmarks else deadline
                if timer is None or timer.when() != wake_at:
                    if timer is not None:
                        timer.cancel()
                    timer = loop.call_at(wake_at, self._wake)
                await self._changed()
        finally:
            self._collection.watches -= 1
            if timer is not None:
                timer.cancel()
            if self._waiter is not None:
                self._collection.forget(self._waiter)

    async def _changed(self) -> None:
        self._waiter = self._collection.changed()
        await self._waiter
        self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _initial_events(self) -> bytes:
        frames = [self._event("ADDED", stored) for stored in self._initial]
        self._initial = []
        if self._parameters.send_initial_events and self._parameters.allow_bookmarks:
            end = self._bookmark(self._list_revision, {_END_OF_LIST: "true"})
            frames.append(encode_event("BOOKMARK", end))
        return b"".join(frames)

    def _event(self, kind: str, stored: Stored) -> bytes:
        body = stored.body if self._view is None else self._view(stored)
        return encode_event(kind, body)

    def _encode_changes(self, changes: list[StoreChange]) -> bytes:
        selection = self._selection
        if selection.is_everything and self._view is None:
            if not selection.prefix:
                return b"".join([change.frame or _shared_frame(change) for change in changes])
            prefix = selection.prefix
            return b"".join(
                [
                    change.frame or _shared_frame(change)
                    for change in changes
                    if change.object.key.startswith(prefix)
                ]
            )
        return b"".join([self._selected(change) for change in changes])

    def _selected(self, change: StoreChange) -> bytes:
        """Encode a change for this selection: an object that enters it is ADDED, one that leaves it DELETED."""
        selection = self._selection
        before = change.previous is not None and selection.matches(change.previous)
        after = change.type != "DELETED" and selection.matches(change.object)
        if after:
            return self._event("MODIFIED" if before else "ADDED", change.object)
        if not before:
            return b""
        if change.type == "DELETED":
            return self._event("DELETED", change.object)
        assert change.previous is not None
        return self._event("DELETED", with_revision(change.previous, change.revision))


def watch_revision(text: str) -> int:
    """Return the revision a watch starts after. Raises StatusError 500, as the real server does, for an invalid one."""
    if not text:
        return 0
    if not text.isascii() or not text.isdigit() or len(text) > _LONGEST_REVISION:
        quoted = quote(text)
        problem = "value out of range" if text.isdigit() else "invalid syntax"
        message = f"resourceVersion: Invalid value: {quoted}: strconv.ParseUint: parsing {quoted}: {problem}"
        raise StatusError(500, "", message)
    return int(text)


def _shared_frame(change: StoreChange) -> bytes:
    change.frame = encode_event(change.type, change.object.body)
    return change.frame


def too_old(error: CompactedError) -> StatusError:
    """Return the error for a watch from a compacted revision."""
    return expired(f"too old resource version: {error.requested} ({error.oldest})")


def _next_bookmark(now: float, deadline: float) -> float:
    """Return the time of the next bookmark: about every minute, and shortly before the watch ends."""
    due = min(now + BOOKMARK_SECONDS, deadline - LAST_BOOKMARK_SECONDS)
    return due if due > now else float("inf")
