"""Requests, the users who send them, and replies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import msgspec

__all__ = [
    "ADMIN",
    "ANONYMOUS",
    "HEADER_SEPARATOR",
    "ConnectionDroppedError",
    "Reply",
    "Request",
    "RequestUser",
]

HEADER_SEPARATOR = "\n"
"""Separates the values of a repeated `Impersonate-` header. A group's name may contain a comma, but no line feed."""


class RequestUser(msgspec.Struct, frozen=True, kw_only=True):
    """The user who sends a request."""

    username: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, list[str]] = {}


ADMIN = RequestUser(username="kubernetes-admin", groups=("system:masters", "system:authenticated"))
"""The user of the devcluster's kubeconfig, and of a request without a user."""

ANONYMOUS = RequestUser(username="system:anonymous", groups=("system:unauthenticated",))
"""The user of a request without credentials, where they are required."""


class Request(msgspec.Struct, kw_only=True):
    """One request, with or without a socket."""

    method: str
    path: str
    query: str = ""
    """The raw query, without the question mark."""
    headers: Mapping[str, str] = {}
    """Keys in lower case."""
    body: bytes = b""
    client: str = ""
    """Name of the client in fault plans, such as one operator process of a simulation."""
    user: RequestUser | None = None


class Reply(msgspec.Struct, kw_only=True):
    """One reply. The body of a watch is an iterator, to be closed when its client disconnects."""

    status: int
    headers: dict[str, str]
    body: bytes | AsyncIterator[bytes] = b""


class ConnectionDroppedError(ConnectionError):
    """A request without a reply: the fault plan closes its connection."""
