"""The application of a manager that starts: it responds to probes until the real one takes its place.

A manager may wait long for its keys in Vault. Kubernetes would restart it, over and over, if nothing listened.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec

__all__ = ["StartingApplication"]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Any, Any, Any], Awaitable[None]]

_PROBLEM = msgspec.json.encode(
    {
        "type": "about:blank",
        "title": "Service Unavailable",
        "status": 503,
        "detail": "The manager is starting. Its log says what it waits for.",
    }
)


class StartingApplication:
    """An ASGI application that is alive and not ready, until it has one to hand requests to."""

    def __init__(self) -> None:
        self._ready: Application | None = None

    def hand_over(self, application: Application) -> None:
        """Let an application respond from now on."""
        self._ready = application

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if self._ready is not None:
            await self._ready(scope, receive, send)
        elif scope["type"] == "http" and scope["path"] == "/livez":
            await _respond(send, 200, "text/plain", b"ok")
        elif scope["type"] == "http":
            await _respond(send, 503, "application/problem+json", _PROBLEM)


async def _respond(send: Send, status: int, media_type: str, body: bytes) -> None:
    headers = [
        (b"content-type", media_type.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
        *([(b"retry-after", b"5")] if status == 503 else []),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
