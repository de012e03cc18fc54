"""Idempotency keys: a POST that is sent twice with the same key has one effect and one response."""

import hashlib

from litestar import Request
from litestar.middleware import ASGIMiddleware
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from kapsa.fleet.api.access import access_of
from kapsa.fleet.api.authentication.callers import Caller
from kapsa.fleet.api.problems import RequestUnprocessable
from kapsa.fleet.domain.errors import InvalidField, InvalidInput, StateConflict
from kapsa.fleet.orchestrator.ports.requests.idempotency import (
    ClaimState,
    IdempotencyKeys,
    KeyClaim,
    RecordedResponse,
    current_claim,
)

__all__ = ["IDEMPOTENCY_HEADER", "IdempotencyMiddleware"]

IDEMPOTENCY_HEADER = "Idempotency-Key"
_LONGEST = 128
_KEPT_HEADERS = frozenset({"content-type", "location", "etag"})


class IdempotencyMiddleware(ASGIMiddleware):
    """The replay of responses. It stands inside the access check, so that a key gives no rights."""

    def __init__(self, keys: IdempotencyKeys) -> None:
        self._keys = keys

    async def handle(self, scope: Scope, receive: Receive, send: Send, next_app: ASGIApp) -> None:
        """Pass a request on, or send the response that its key has."""
        request: Request = Request(scope, receive, send)  # type: ignore[type-arg]
        key = request.headers.get(IDEMPOTENCY_HEADER)
        caller = scope.get("user")
        rules = access_of(scope["route_handler"].opt)
        if key is None or scope.get("method") != "POST" or rules is None or not isinstance(caller, Caller):
            await next_app(scope, receive, send)
            return
        _check_key(key)
        fingerprint = _fingerprint(request, await request.body())
        claim = await self._keys.claim(caller.principal.subject, key, fingerprint)
        response = _replayed(claim)
        if response is not None:
            await _send(response, send)
            return
        await self._execute(claim, scope, receive, send, next_app)

    async def _execute(
        self, claim: KeyClaim, scope: Scope, receive: Receive, send: Send, next_app: ASGIApp
    ) -> None:
        messages: list[Message] = []

        async def keep(message: Message) -> None:
            messages.append(message)

        context = current_claim.set(claim)
        try:
            await next_app(scope, receive, keep)
        except BaseException:
            await self._keys.release(claim)
            raise
        finally:
            current_claim.reset(context)
        response = _recorded(messages)
        if 200 <= response.status < 300:
            await self._keys.finish(claim, response)
        else:
            await self._keys.release(claim)
        for message in messages:
            await send(message)


def _check_key(key: str) -> None:
    if not 0 < len(key) <= _LONGEST or not key.isascii() or not key.isprintable():
        message = f"must have 1 to {_LONGEST} printable ASCII characters"
        raise InvalidInput(f"{IDEMPOTENCY_HEADER} {message}", InvalidField(f"/{IDEMPOTENCY_HEADER}", message))


def _fingerprint(request: Request, body: bytes) -> bytes:  # type: ignore[type-arg]
    digest = hashlib.sha256()
    for part in (request.method.encode(), request.scope["path"].encode(), body):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.digest()


def _replayed(claim: KeyClaim) -> RecordedResponse | None:
    match claim.state:
        case ClaimState.FRESH:
            return None
        case ClaimState.REPLAY:
            return claim.response
        case ClaimState.MISMATCH:
            raise RequestUnprocessable(
                f"the {IDEMPOTENCY_HEADER} was used for another request: choose a new key for a new request"
            )
        case ClaimState.IN_PROGRESS:
            raise StateConflict(
                f"a request with this {IDEMPOTENCY_HEADER} is being handled: "
                f"send it again in {claim.retry_after} seconds"
            )
        case ClaimState.LOST:
            raise StateConflict(
                "the request took effect, but its response was lost: read the object instead of sending it again"
            )


def _recorded(messages: list[Message]) -> RecordedResponse:
    start = next(message for message in messages if message["type"] == "http.response.start")
    headers = {name.decode().lower(): value.decode() for name, value in start["headers"]}
    body = b"".join(message["body"] for message in messages if message["type"] == "http.response.body")
    kept = {name: value for name, value in headers.items() if name in _KEPT_HEADERS}
    return RecordedResponse(start["status"], kept, body)


async def _send(response: RecordedResponse, send: Send) -> None:
    headers = [(name.encode(), value.encode()) for name, value in response.headers.items()]
    headers += [(b"content-length", str(len(response.body)).encode()), (b"idempotency-replayed", b"true")]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body, "more_body": False})
