"""What goes through the server's door: a request, who asks, and a reply."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import msgspec

__all__ = ["ADMIN", "ConnectionDroppedError", "Reply", "Request", "RequestUser"]


class RequestUser(msgspec.Struct, frozen=True, kw_only=True):
    """Who makes a request."""

    username: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, list[str]] = {}


ADMIN = RequestUser(username="kubernetes-admin", groups=("system:masters", "system:authenticated"))
"""The user of the devcluster's kubeconfig, and of a request that names none."""


class Request(msgspec.Struct, kw_only=True):
    """One request, whichever door it came through."""

    method: str
    path: str
    query: str = ""
    """The raw query, without the question mark."""
    headers: Mapping[str, str] = {}
    """Keys in lower case."""
    body: bytes = b""
    client: str = ""
    """Identity for the fault plan: one operator process of a simulation, for instance."""
    user: RequestUser | None = None


class Reply(msgspec.Struct, kw_only=True):
    """One answer. A watch's body is an iterator, which the door must close when its client goes away."""

    status: int
    headers: dict[str, str]
    body: bytes | AsyncIterator[bytes] = b""


class ConnectionDroppedError(ConnectionError):
    """The request gets no answer: the door must close the connection, as a fault plan wants it."""
