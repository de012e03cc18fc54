"""The dispatch of API calls: through the write gate, with retries, reported to observers."""

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from kapsa.runtime.client._server_warnings import ServerWarnings
from kapsa.runtime.client.http.transport import Query, Response, Transport
from kapsa.runtime.client.retry import RetryPolicy
from kapsa.runtime.clock import Clock
from kapsa.runtime.errors import ClientError, TransportError, WriteRefused, error_from_response

__all__ = ["Call", "CallObserver", "Dispatcher", "UnansweredWrite", "WriteGate"]

Verb = Literal["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]

WriteGate = Callable[[], float | None]
"""Called before each write, and again right before it is sent. Raises `WriteRefused` to stop the write, or returns the
seconds for which it may still be sent (None: no limit); a write that takes longer fails."""

UnansweredWrite = Callable[[], None]
"""Called after each write that ended without a final answer: the server may still carry it out."""


class Call(msgspec.Struct, frozen=True):
    """A request to the API server, in RBAC's terms. `resource` is empty for a path that is not a resource."""

    verb: Verb
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def writes(self) -> bool:
        return self.verb not in _READS


_READS = ("get", "list", "watch")
_UNANSWERED = (0, 504)
"""The codes after which a write may still be carried out: no response, and a server that stopped waiting for it."""

CallObserver = Callable[[Call, int, float], None]
"""Called after each attempt with the call, the HTTP status (0 without a response) and the seconds it took."""


class Dispatcher:
    """The sender of all requests of a client."""

    def __init__(
        self,
        transport: Transport,
        *,
        clock: Clock,
        retry: RetryPolicy,
        before_write: WriteGate | None = None,
        on_unanswered: UnansweredWrite | None = None,
        observers: list[CallObserver] | None = None,
        warnings: ServerWarnings | None = None,
    ) -> None:
        self.transport = transport
        self.before_write = before_write
        self.on_unanswered = on_unanswered
        self.observers: list[CallObserver] = observers if observers is not None else []
        self.warnings = warnings or ServerWarnings()
        self._clock = clock
        self._retry = retry

    def gated(
        self, before_write: WriteGate | None, on_unanswered: UnansweredWrite | None = None
    ) -> "Dispatcher":
        """Return a dispatcher with another write gate that shares everything else with this one."""
        return Dispatcher(
            self.transport,
            clock=self._clock,
            retry=self._retry,
            before_write=before_write,
            on_unanswered=on_unanswered,
            observers=self.observers,
            warnings=self.warnings,
        )

    async def send(
        self,
        call: Call,
        method: str,
        path: str,
        *,
        query: Query = (),
        headers: Mapping[str, str],
        body: bytes = b"",
        idempotent: bool,
    ) -> Response:
        """Send a request and return the response. Raises the typed error if the server returns one."""
        waited = 0.0
        attempt = 1
        while True:
            try:
                response = await self._attempt(call, method, path, query, headers, body)
            except TransportError as error:
                failure: ClientError = error
            else:
                self.warnings.log(response.headers, method, path)
                if response.status < 300:
                    self._retry.budget.succeeded()
                    return response
                failure = error_from_response(
                    response.status, response.headers, response.body, action=f"{method} {path}"
                )
            delay = self._retry.delay(failure, attempt=attempt, waited=waited, idempotent=idempotent)
            if delay is None:
                raise failure
            await self._clock.sleep(delay)
            waited += delay
            attempt += 1

    async def _attempt(
        self, call: Call, method: str, path: str, query: Query, headers: Mapping[str, str], body: bytes
    ) -> Response:
        gate = self.before_write if call.writes else None
        allowance = gate() if gate is not None else None
        started = self._clock.monotonic()
        code = 0
        sent = True
        try:
            response = await self.transport.request(
                method, path, query=query, headers=headers, body=body, timeout=allowance, before_send=gate
            )
        except (TransportError, WriteRefused) as error:
            sent = isinstance(error, TransportError) and error.sent
            raise
        else:
            code = response.status
            return response
        finally:
            if self.on_unanswered is not None and sent and code in _UNANSWERED and call.writes:
                self.on_unanswered()
            if self.observers:
                self.notify(call, code, self._clock.monotonic() - started)

    def notify(self, call: Call, code: int, seconds: float) -> None:
        """Report an attempt to the observers."""
        for observer in self.observers:
            observer(call, code, seconds)


def closed_gate(reason: str) -> WriteGate:
    """Return a gate that stops all writes, for a client that only reads."""

    def stop() -> float | None:
        raise WriteRefused(reason)

    return stop
