"""The gate that applies a fault plan to each request, in the embedded server and in the proxy."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

import msgspec

from kapsa.devcluster.faults.plan import Answer, Compact, Crash, Delay, Drop, FaultPlan, Freeze, RequestTarget
from kapsa.devcluster.faults.streams import faulty_stream
from kapsa.devcluster.wire.exchange import ConnectionDroppedError, Reply, Request
from kapsa.devcluster.wire.routes import ResourceRoute
from kapsa.devcluster.wire.status_errors import MODIFIED, PlainError, StatusError, expired
from kapsa.devcluster.wire.watch_events import error_event

__all__ = ["FaultGate"]


class Serve(Protocol):
    """A function that serves a request without faults."""

    def __call__(
        self, request: Request, route: ResourceRoute, verb: str, frozen: int | None = None
    ) -> Awaitable[Reply]: ...


class Levers(Protocol):
    """The faults that only the server itself can produce."""

    async def sleep(self, seconds: float) -> None: ...

    async def compact(self) -> None: ...

    async def revision(self) -> int: ...


class FaultGate:
    """The gate that serves, fails or drops requests according to the plan, and records them."""

    def __init__(self, levers: Levers, plan: FaultPlan) -> None:
        self._levers = levers
        self._plan = plan

    async def serve(self, request: Request, route: ResourceRoute, verb: str, serve: Serve) -> Reply:
        """Serve a request under the plan. Raises ConnectionDroppedError when the client gets no reply."""
        plan = self._plan
        target = _target(request, route, verb)
        record = plan.record(target)
        if plan.is_crashed(request.client):
            raise ConnectionDroppedError(f"client {request.client!r} has crashed")
        early = await self._act(target, "before")
        if early is not None:
            record.status = early.status
            return early
        try:
            reply = await serve(request, route, verb, plan.frozen_for(request.client))
        except (StatusError, PlainError) as error:
            reply = error.reply()
        late = await self._act(target, "after")
        reply = late or reply
        record.status = reply.status
        if not isinstance(reply.body, bytes):
            reply.body = faulty_stream(reply.body, plan, target, _EXPIRED)
        return reply

    async def _act(self, target: RequestTarget, when: str) -> Reply | None:
        """Carry out the actions that are due. Return the reply if the plan provides one."""
        plan = self._plan
        for action in plan.due(target, "before" if when == "before" else "after"):
            match action:
                case Answer():
                    return error_of(action).reply()
                case Delay(seconds):
                    await self._levers.sleep(seconds)
                case Compact():
                    await self._levers.compact()
                case Freeze():
                    plan.freeze(await self._levers.revision(), action.client)
                case Crash():
                    plan.crash(target.client)
                    raise ConnectionDroppedError(f"client {target.client!r} crashes here")
                case Drop():
                    raise ConnectionDroppedError("the fault plan drops this connection")
                case _:
                    raise AssertionError(f"{action} applies only to watches")
        if plan.is_crashed(target.client):
            raise ConnectionDroppedError(f"client {target.client!r} has crashed")
        return None


def _target(request: Request, route: ResourceRoute, verb: str) -> RequestTarget:
    resource = f"{route.resource}/{route.subresource}" if route.subresource else route.resource
    name = route.name
    if verb == "create" and not name and request.body:
        name = _name_in(request.body)
    return RequestTarget(
        verb=verb,
        group=route.group,
        resource=resource,
        namespace=route.namespace,
        name=name,
        client=request.client,
    )


class _Named(msgspec.Struct):
    name: str = ""


class _Body(msgspec.Struct):
    metadata: _Named = msgspec.field(default_factory=_Named)


def _name_in(body: bytes) -> str:
    """Return the name in the body of a create, for rules and records."""
    try:
        return msgspec.json.decode(body, type=_Body).metadata.name
    except msgspec.DecodeError:
        return ""


def error_of(action: Answer) -> StatusError:
    """Return the error of an action."""
    reason, message = _USUAL.get(action.code, ("InternalError", "injected by the fault plan"))
    details: dict[str, int] = {}
    headers: dict[str, str] = {}
    if action.retry_after is not None:
        details["retryAfterSeconds"] = action.retry_after
        headers["retry-after"] = str(action.retry_after)
    return StatusError(
        action.code,
        action.reason or reason,
        action.message or message,
        details=dict(details) or None,
        headers=headers,
    )


_USUAL = {
    409: (
        "Conflict",
        "Operation cannot be fulfilled: " + MODIFIED,
    ),
    410: ("Expired", "The resourceVersion for the provided list is too old."),
    429: ("TooManyRequests", "too many requests, please try again later"),
    500: ("InternalError", "Internal error occurred: injected by the fault plan"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: ("Timeout", "Timeout: request did not complete within the allotted timeout"),
}
_EXPIRED = error_event(expired("too old resource version: 0 (1)"))
