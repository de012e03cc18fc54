"""Sends one API call: through the write gate, with retries, seen by the observers."""

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from kapsa.runtime.client._server_warnings import ServerWarnings
from kapsa.runtime.client.http.transport import Query, Response, Transport
from kapsa.runtime.client.retry import RetryPolicy
from kapsa.runtime.clock import Clock
from kapsa.runtime.errors import ClientError, TransportError, WriteRefused, error_from_response

__all__ = ["Call", "CallObserver", "Dispatcher", "WriteGate"]

Verb = Literal["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]

WriteGate = Callable[[], float | None]
"""Asked right before each write leaves. Raises `WriteRefused` to stop it, or returns the seconds for which the
permission still lasts (None: no limit); a write that has not left by then is given up."""


class Call(msgspec.Struct, frozen=True):
    """What is asked of the API server, in the words of RBAC. A path that is no resource has none."""

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

CallObserver = Callable[[Call, int, float], None]
"""Told of every attempt: the call, the HTTP status (0 when no answer came) and the seconds it took."""


class Dispatcher:
    """The one place requests leave from."""

    def __init__(
        self,
        transport: Transport,
        *,
        clock: Clock,
        retry: RetryPolicy,
        before_write: WriteGate | None = None,
        observers: list[CallObserver] | None = None,
        warnings: ServerWarnings | None = None,
    ) -> None:
        self.transport = transport
        self.before_write = before_write
        self.observers: list[CallObserver] = observers if observers is not None else []
        self.warnings = warnings or ServerWarnings()
        self._clock = clock
        self._retry = retry

    def gated(self, before_write: WriteGate | None) -> "Dispatcher":
        """The same connections, retry budget, observers and warnings behind another write gate."""
        return Dispatcher(
            self.transport,
            clock=self._clock,
            retry=self._retry,
            before_write=before_write,
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
        """The answer, if it is a success; the typed error otherwise."""
        waited = 0.0
        attempt = 1
        while True:
            try:
                response = await self._attempt(call, method, path, query, headers, body)
            except TransportError as error:
                failure: ClientError = error
            else:
                self.warnings.hear(response.headers, method, path)
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
        allowance = self.before_write() if self.before_write is not None and call.writes else None
        started = self._clock.monotonic()
        code = 0
        try:
            response = await self.transport.request(
                method, path, query=query, headers=headers, body=body, timeout=allowance
            )
            code = response.status
            return response
        finally:
            if self.observers:
                self.observed(call, code, self._clock.monotonic() - started)

    def observed(self, call: Call, code: int, seconds: float) -> None:
        for observer in self.observers:
            observer(call, code, seconds)


def closed_gate(reason: str) -> WriteGate:
    """A gate that lets nothing through: for a client that only ever reads."""

    def refuse() -> float | None:
        raise WriteRefused(reason)

    return refuse
