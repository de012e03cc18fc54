"""A transport whose requests carry the trace context of the step that makes them."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager

from kapsa.fleet.infrastructure.telemetry.spans import trace_headers
from kapsa.runtime import Response, StreamResponse, Transport

__all__ = ["TracedTransport"]

_NO_HEADERS: Mapping[str, str] = {}


class TracedTransport:
    """Requests to a managed cluster. Those of Helm have the context of their run already, and keep it."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] = _NO_HEADERS,
        body: bytes = b"",
        timeout: float | None = None,
        before_send: Callable[[], float | None] | None = None,
    ) -> Response:
        """Send one request and read the whole response."""
        traced = {**trace_headers(), **headers}
        return await self._transport.request(
            method, path, query=query, headers=traced, body=body, timeout=timeout, before_send=before_send
        )

    def stream(
        self,
        method: str,
        path: str,
        *,
        query: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] = _NO_HEADERS,
    ) -> AbstractAsyncContextManager[StreamResponse]:
        """Send one request and read the response as it arrives."""
        return self._transport.stream(method, path, query=query, headers={**trace_headers(), **headers})

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.close()
