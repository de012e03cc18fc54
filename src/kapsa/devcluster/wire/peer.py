"""The peer of a connection: the user that its client certificate names, and web pages that have no business here."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from functools import lru_cache

from kapsa.devcluster.wire.exchange import ANONYMOUS, RequestUser

__all__ = ["remote_page", "user_of_connection"]

_LOCAL = frozenset(("", "localhost", "127.0.0.1", "[::1]"))


def user_of_connection(transport: asyncio.BaseTransport) -> RequestUser | None:
    """Return the user of a TLS connection: of its certificate, or the anonymous one. None without TLS.

    The common name is the user's, and each organization is a group.
    """
    connection = transport.get_extra_info("ssl_object")
    if connection is None:
        return None
    certificate = connection.getpeercert()
    if not certificate:
        return ANONYMOUS
    names = [pair for part in certificate.get("subject", ()) for pair in part]
    username = next((value for field, value in names if field == "commonName"), "")
    if not username:
        return ANONYMOUS
    digest = hashlib.sha256(connection.getpeercert(binary_form=True)).hexdigest()
    return RequestUser(
        username=username,
        groups=(*(value for field, value in names if field == "organizationName"), "system:authenticated"),
        extra={"authentication.kubernetes.io/credential-id": [f"X509SHA256={digest}"]},
    )


def remote_page(headers: Mapping[str, str]) -> str:
    """Return the host of a web page from elsewhere that makes a browser send this request; empty if there is none.

    Over plain HTTP no credentials are needed, and a browser on this machine could be made to send requests. It names
    the page's host in Origin, or in Host when a name of the page resolves to the loopback address.
    """
    origin = headers.get("origin")
    if origin and not _is_local(origin):
        return origin
    host = headers.get("host", "")
    return "" if _is_local(host) else host


@lru_cache(maxsize=256)
def _is_local(value: str) -> bool:
    """Return whether a Host or Origin header names the loopback address."""
    host = value.rpartition("://")[2].lower()
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() else host) in _LOCAL
