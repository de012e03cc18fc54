"""The user of a connection: the one that its client certificate names."""

from __future__ import annotations

import asyncio
import hashlib

from kapsa.devcluster.wire.exchange import ANONYMOUS, RequestUser

__all__ = ["user_of_connection"]


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
