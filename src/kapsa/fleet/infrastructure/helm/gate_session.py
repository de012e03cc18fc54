"""One run's way through the gate: its token, credential and lease, and a record of each write.

Before each write the lease is checked on the monotonic clock of this process: a manager that slept past its lease
writes nothing, and neither does its helm. A run that got no answer writes nothing more either. Helm would mark its
revision as failed, and the engine would roll back a version that has done nothing wrong; so the revision stays
pending, is recognized as ours, and is made again. An API server that stays busy has given no answer either.
"""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from kapsa.adapters.redaction import printable, redact
from kapsa.fleet.infrastructure.helm.api_path import parse_path
from kapsa.fleet.infrastructure.helm.busy_answers import BusyAnswer, busy_answer
from kapsa.fleet.infrastructure.helm.gate_rules import (
    GateRequest,
    GateRuling,
    RequestRefused,
    Restoration,
    judge_request,
)
from kapsa.fleet.infrastructure.telemetry.spans import trace_headers
from kapsa.fleet.orchestrator.ports.leases import LeaseGuard, LeaseLost
from kapsa.runtime import Response, StreamResponse, Transport, TransportError

__all__ = ["GateSession", "GateWrite"]

_FORWARDED = ("Accept", "Content-Type", "If-None-Match")
"""Headers of helm that reach the API server: no credential, and nobody to impersonate."""
_WRITE_SECONDS = 60.0
_POLL_SECONDS = 1.0
_RETRY_DELAYS = (0.2, 1.0)
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 5.0
_REQUEST_PAUSES = 20.0
"""The seconds that one request waits for a busy API server at most."""
_RUN_PAUSES = 60.0
"""The seconds that all requests of a run wait for it, so that no time limit of helm ends the run instead."""
_MOST_WRITES = 500
_LONGEST_PATH = 200
_REJECTED = "the cluster rejected the token of this manager"


class GateWrite(msgspec.Struct, omit_defaults=True, rename="camel"):
    """A write that a run made, or tried to make."""

    verb: str
    resource: str
    status: int = 0
    """The HTTP status of the answer; 0 if none has arrived."""
    effect: str = ""
    """`try` for a write that changed nothing, `refused` for one that was not forwarded."""


class GateSession:
    """The requests of one run."""

    def __init__(
        self, transport: Transport, guard: LeaseGuard, *, restoration: Restoration | None = None
    ) -> None:
        self.token = secrets.token_urlsafe(32)
        self.writes: list[GateWrite] = []
        self.write_count = 0
        self.unreachable = ""
        """The reason why a request got no answer; empty if each got one."""
        self.undiscovered = ""
        """The reason why the cluster did not say what it serves, or not all of it; empty if it did."""
        self._transport = transport
        self._guard = guard
        self._restoration = restoration
        self._trace = trace_headers()
        self.lapsed = False
        """True if the lease was seen to have lapsed."""
        self._paused = 0.0
        self._ended = asyncio.Event()
        self._tasks: set[asyncio.Task[object]] = set()

    @property
    def began(self) -> bool:
        """True if the run has stored a revision of its own."""
        return any(
            write.verb == "POST" and write.resource.startswith("secrets ") and write.status == 201
            for write in self.writes
        )

    @property
    def changed_objects(self) -> bool:
        """True if the run may have changed more than Secrets, in which it stores its revisions."""
        return any(not write.effect and not write.resource.startswith("secrets ") for write in self.writes)

    async def lease_lapses(self) -> None:
        """Wait until the lease has lapsed, and close the session then."""
        while not self._ended.is_set() and (remaining := self._guard.remaining) > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), min(remaining, _POLL_SECONDS))
        if self._guard.remaining <= 0:
            self._lapse()

    async def close(self) -> None:
        """End every request that is under way."""
        self._ended.set()
        tasks = self._tasks - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @asynccontextmanager
    async def request_under_way(self) -> AsyncIterator[None]:
        """Count the present task among those that end with the session."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            yield
        finally:
            self._tasks.discard(task)

    def judge(self, request: GateRequest) -> tuple[GateRuling, GateRequest]:
        """Return the way of a request. Raises `RequestRefused`."""
        if self._ended.is_set():
            raise _over()
        try:
            return judge_request(request, restoration=self._restoration)
        except RequestRefused as error:
            if request.method != "GET":
                self._record(request, effect="refused").status = error.status
            raise

    async def forward(self, ruling: GateRuling, request: GateRequest) -> Response:
        """Send a request to the API server, and return its answer. Raises `RequestRefused`."""
        if ruling is not GateRuling.WRITE:
            write = self._record(request, effect="try") if ruling is GateRuling.TRY else None
            response = await self._answer(request, write, repeatable=True)
            return await self._live_crd(request) if _rejects_crd(request, response) else response
        if self.unreachable:
            raise _no_answer(self.unreachable)
        return await self._answer(request, self._record(request), repeatable=False, leased=True)

    @asynccontextmanager
    async def stream(self, request: GateRequest) -> AsyncIterator[StreamResponse]:
        """Open a watch, or a log that is followed. Raises `TransportError`, which the run survives."""
        waits = _BusyWait()
        while True:
            async with self._transport.stream(
                "GET", request.target, headers=self._headers(request)
            ) as stream:
                busy = busy_answer(Response(stream.status, stream.headers, b""))
                if busy is None:
                    self.check_accepted(stream.status)
                    yield stream
                    return
            await self._wait_out(busy, waits, repeatable=True)

    def check_accepted(self, status: int) -> None:
        """Let the run write nothing more once the cluster has rejected its credential. Raises `RequestRefused`.

        Helm would take a 401 for a failure of the version.
        """
        if status == 401:
            raise self.break_off(_REJECTED)

    def break_off(self, reason: str) -> RequestRefused:
        """Let the run write nothing more, since a request of it got no answer. Return the refusal."""
        self.unreachable = self.unreachable or reason
        return _no_answer(self.unreachable)

    async def _live_crd(self, request: GateRequest) -> Response:
        """Return the CRD that a run tried to change in a way that the API server rejects.

        A rollback applies the CRDs of an earlier revision, which lack versions that are stored by now. Nothing of a
        run changes a CRD, so the rejection must not end the run.
        """
        live = msgspec.structs.replace(request, method="GET", target=request.path, body=b"")
        return await self._answer(live, None, repeatable=True)

    async def _answer(
        self, request: GateRequest, write: GateWrite | None, *, repeatable: bool, leased: bool = False
    ) -> Response:
        """Send a request, and again if that cannot do anything twice, until the API server is not too busy for it."""
        waits = _BusyWait()
        while True:
            response = await self._send(request, repeatable=repeatable, leased=leased)
            if write is not None:
                write.status = response.status
            self.check_accepted(response.status)
            busy = busy_answer(response)
            if busy is None:
                return response
            if busy.processed and parse_path(request.path) is None:
                # Discovery of one group may be unavailable for long, and helm goes on without it.
                self.undiscovered = f"GET {request.path[:_LONGEST_PATH]}: {busy.text}"
                return response
            await self._wait_out(busy, waits, repeatable=repeatable)

    async def _send(self, request: GateRequest, *, repeatable: bool, leased: bool) -> Response:
        for delay in (*_RETRY_DELAYS, None):
            seconds = self._allowance() if leased else None
            try:
                return await self._transport.request(
                    request.method,
                    request.target,
                    headers=self._headers(request),
                    body=request.body,
                    timeout=seconds,
                    # The machine may have been suspended while the request waited for a connection.
                    before_send=self._allowance if leased else None,
                )
            except TransportError as error:
                if delay is None or not (repeatable or not error.sent):
                    raise self._failed(error) from None
                await asyncio.sleep(delay)
        raise AssertionError("the last attempt returns or raises")

    async def _wait_out(self, busy: BusyAnswer, waits: "_BusyWait", *, repeatable: bool) -> None:
        """Wait until a request may be sent again. Raises `RequestRefused` if it may not, or the wait is too long."""
        pause = waits.next(busy)
        too_long = waits.seconds > _REQUEST_PAUSES or self._paused + pause > _RUN_PAUSES
        if too_long or (busy.processed and not repeatable):
            raise self.break_off(busy.text)
        self._paused += pause
        await asyncio.sleep(pause)

    def _allowance(self) -> float:
        """Return the seconds for which a write may be sent. Raises `RequestRefused` after the lease."""
        try:
            self._guard.check()
        except LeaseLost:
            raise self._lapse() from None
        return min(self._guard.remaining, _WRITE_SECONDS)

    def _lapse(self) -> RequestRefused:
        self.lapsed = True
        self._ended.set()
        return _over()

    def _failed(self, error: TransportError) -> RequestRefused:
        if self._guard.remaining <= 0:
            return self._lapse()
        return self.break_off(redact(printable(str(error)))[:500])

    def _record(self, request: GateRequest, effect: str = "") -> GateWrite:
        write = GateWrite(request.method, str(parse_path(request.path) or request.path)[:300], effect=effect)
        self.write_count += 1
        if len(self.writes) < _MOST_WRITES:
            self.writes.append(write)
        return write

    def _headers(self, request: GateRequest) -> dict[str, str]:
        kept = {name: request.headers[name] for name in _FORWARDED if name in request.headers}
        return {**kept, **self._trace}


class _BusyWait:
    """The pauses of one request between answers of a busy API server."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._next = _FIRST_PAUSE

    def next(self, busy: BusyAnswer) -> float:
        pause = max(busy.retry_after, self._next)
        self._next = min(2 * self._next, _LONGEST_PAUSE)
        self.seconds += pause
        return pause


def _rejects_crd(request: GateRequest, response: Response) -> bool:
    """Return whether the API server rejects the dry run of a change to an existing CRD."""
    path = parse_path(request.path)
    crd = path is not None and path.resource == "customresourcedefinitions"
    return crd and request.method in ("PATCH", "PUT") and response.status in (409, 422)


def _over() -> RequestRefused:
    message = "the lease of this run has lapsed: another replica may have taken over"
    return RequestRefused(403, "Forbidden", message)


def _no_answer(reason: str) -> RequestRefused:
    return RequestRefused(503, "ServiceUnavailable", f"the cluster gave no answer: {reason}")
