"""A fake transport that returns prepared responses in order, and a client that uses it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec

from kapsa.runtime.client.client import Client
from kapsa.runtime.client.http.transport import Response
from kapsa.runtime.resources.model import Spec, Status
from kapsa.runtime.resources.resource import CustomResource


class AppSpec(Spec):
    image: str
    replicas: int = 1


class AppStatus(Status):
    ready: int = 0


class App(CustomResource[AppSpec, AppStatus], group="example.com", version="v1"):
    """An application."""


class Service(msgspec.Struct, kw_only=True):
    apiVersion: str = "v1"  # noqa: N815 - the wire's own name
    kind: str = "Service"
    metadata: dict[str, Any]
    spec: dict[str, Any] = {}


class ManualClock:
    """A clock on which sleeping takes no time."""

    def __init__(self) -> None:
        self.time = 0.0
        self.slept: list[float] = []

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.time, UTC)

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds


class Request(msgspec.Struct):
    """A request as the transport received it."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    timeout: float | None


CORE = {
    "resources": [
        {"name": "services", "kind": "Service", "namespaced": True, "verbs": ["get"]},
        {"name": "services/status", "kind": "Service", "namespaced": True},
        {"name": "nodes", "kind": "Node", "namespaced": False},
        {"name": "pods", "kind": "Pod", "namespaced": True},
        {"name": "pods/log", "kind": "Pod", "namespaced": True},
    ]
}
DISCOVERY = {
    "/api/v1": CORE,
    "/apis/example.com/v1": {"resources": [{"name": "apps", "kind": "App", "namespaced": True}]},
}


class FakeTransport:
    """A transport that returns prepared responses in order, and serves discovery."""

    def __init__(self, *responses: "Response | Exception | FakeStream | list[bytes | Exception]") -> None:
        self.responses = list(responses)
        self.requests: list[Request] = []
        self.closed = False

    def _next(
        self, method: str, path: str, query: Sequence[tuple[str, str]], headers: Mapping[str, str],
        body: bytes, timeout: float | None,
    ) -> Any:  # fmt: skip
        self.requests.append(Request(method, path, dict(query), dict(headers), body, timeout))
        return self.responses.pop(0)

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] = {},
        body: bytes = b"",
        timeout: float | None = None,
        before_send: Callable[[], float | None] | None = None,
    ) -> Response:
        if path in DISCOVERY:
            return ok(DISCOVERY[path])
        response = self._next(method, path, query, headers, body, timeout)
        if isinstance(response, Exception):
            raise response
        assert isinstance(response, Response)
        return response

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        *,
        query: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] = {},
    ) -> AsyncIterator[Any]:
        response = self._next(method, path, query, headers, b"", None)
        if isinstance(response, Response):
            yield FakeStream([response.body], response.status, response.headers)
        elif isinstance(response, FakeStream):
            yield response
        else:
            yield FakeStream(response)

    async def close(self) -> None:
        self.closed = True


class FakeStream:
    """A streamed response: its chunks, then its end, or nothing more if it stalls."""

    def __init__(
        self,
        chunks: Sequence[bytes | Exception],
        status: int = 200,
        headers: Mapping[str, str] = {},
        *,
        stalls: bool = False,
    ) -> None:
        self.chunks, self.status, self.headers, self.stalls = chunks, status, headers, stalls

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self.chunks:
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk
        if self.stalls:
            await asyncio.Event().wait()


def ok(body: Any, status: int = 200) -> Response:
    return Response(status, {}, msgspec.json.encode(body))


def error_response(code: int, reason: str, headers: dict[str, str] | None = None, **details: Any) -> Response:
    body = {"status": "Failure", "code": code, "reason": reason, "message": reason, "details": details}
    return Response(code, headers or {}, msgspec.json.encode(body))


def client_with(transport: FakeTransport, **options: Any) -> Client:
    options.setdefault("clock", ManualClock())
    return Client(transport, field_manager="tester", namespace="home", **options)


APP = {
    "apiVersion": "example.com/v1",
    "kind": "App",
    "metadata": {"name": "web", "namespace": "shop", "resourceVersion": "5"},
    "spec": {"image": "nginx", "replicas": 3},
}


def event_line(event_type: str, body: Any) -> bytes:
    return msgspec.json.encode({"type": event_type, "object": body}) + b"\n"
