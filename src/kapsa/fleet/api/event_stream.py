"""Server-sent events: the history of a deployment, live.

A stream reads the same rows as the list, so that it loses nothing between two replicas or two connections. It ends
with the deployment, and when its caller's token expires, is withdrawn, or the session is signed out. Each stream
reads the database once a second, so the number of a caller's streams is limited.
"""

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import msgspec
from litestar.response import Stream

from kapsa.fleet.api.problems import RateLimited
from kapsa.fleet.api.requests import ApiRequest
from kapsa.fleet.domain.errors import InvalidField, InvalidInput, UnknownObject
from kapsa.fleet.domain.rollout.deployments import RolloutEvent

__all__ = ["EVENT_STREAM", "OpenStreams", "StreamPace", "event_stream", "resume_point"]

EVENT_STREAM = "text/event-stream"
_LONGEST_STREAM = 3600.0
_RETRY_AFTER = 5


class StreamPace(msgspec.Struct, frozen=True):
    """The rhythm of streams, in seconds."""

    poll: float = 1.0
    """Between two reads of the database."""
    check: float = 5.0
    """Between two checks of the caller."""
    keep_alive: float = 15.0
    """Of silence, after which a comment keeps proxies from closing the connection."""


class OpenStreams:
    """The number of open streams of each caller at this replica."""

    def __init__(self, *, per_caller: int = 20) -> None:
        self._per_caller = per_caller
        self._counts: Counter[str] = Counter()

    def check(self, subject: str) -> None:
        """Raise RateLimited if the caller has as many streams as allowed."""
        if self._counts[subject] >= self._per_caller:
            raise RateLimited(
                f"{subject} has {self._per_caller} open streams, which is the limit: close one of them",
                _RETRY_AFTER,
            )

    @contextmanager
    def count(self, subject: str) -> Iterator[None]:
        """Count a stream for as long as it is open."""
        self._counts[subject] += 1
        try:
            yield
        finally:
            self._counts[subject] -= 1
            if not self._counts[subject]:
                del self._counts[subject]


def resume_point(last_event: str | None, after: int) -> int:
    """Return the sequence number that a stream or a list continues after.

    Raises InvalidInput if `Last-Event-ID` is not one that a stream has sent.
    """
    if last_event is None or last_event == "":
        return after
    if not (last_event.isascii() and last_event.isdigit() and len(last_event) <= 16):
        message = "must be the id of an event of this stream"
        raise InvalidInput(f"Last-Event-ID {message}", InvalidField("/Last-Event-ID", message))
    return max(after, int(last_event))


def event_stream(request: ApiRequest, deployment_id: uuid.UUID, after: int) -> Stream:
    """Return the live history of a deployment.

    Raises RateLimited if the caller has too many open streams.
    """
    request.app.state.open_streams.check(request.principal.subject)
    headers = {"X-Accel-Buffering": "no"}
    return Stream(_counted(request, deployment_id, after), media_type=EVENT_STREAM, headers=headers)


async def _counted(request: ApiRequest, deployment_id: uuid.UUID, after: int) -> AsyncIterator[bytes]:
    with request.app.state.open_streams.count(request.principal.subject):
        async for message in _events(request, deployment_id, after):
            yield message


async def _events(request: ApiRequest, deployment_id: uuid.UUID, after: int) -> AsyncIterator[bytes]:
    pace: StreamPace = request.app.state.stream_pace
    deployments = request.use_cases.deployments
    yield b"retry: 3000\n\n"
    begun = checked = spoken = time.monotonic()
    while (now := time.monotonic()) - begun < _LONGEST_STREAM:
        if now - checked >= pace.check:
            checked = now
            if not await request.app.state.authenticator.still_valid(request):
                return
        try:
            active = (await deployments.get(request.principal, deployment_id)).deployment.active
            events = await deployments.events(request.principal, deployment_id, after=after)
        except UnknownObject:
            return
        for event in events:
            after = event.sequence
            yield _message(event)
        if events:
            spoken = now
            continue
        if not active:
            yield b"event: end\ndata: {}\n\n"
            return
        if now - spoken >= pace.keep_alive:
            spoken = now
            yield b": waiting\n\n"
        await asyncio.sleep(pace.poll)


def _message(event: RolloutEvent) -> bytes:
    # JSON has no line breaks outside of its strings, where they are escaped: no text can forge an event.
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (
        event.sequence,
        event.kind.encode(),
        msgspec.json.encode(event),
    )
