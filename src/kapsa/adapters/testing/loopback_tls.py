"""TLS for servers on loopback, with a certificate from their own authority."""

from __future__ import annotations

import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from kapsa.runtime.testing import issue_certificate, make_authority

__all__ = ["loopback_tls"]

_LIFETIME = timedelta(days=1)


def loopback_tls(name: str) -> tuple[ssl.SSLContext, str]:
    """Return the TLS context of a server, and the certificate of its authority, which has this name."""
    now = datetime.now(UTC)
    authority = make_authority(name, now=now, lifetime=_LIFETIME)
    pair = issue_certificate(authority, ["127.0.0.1", "localhost"], now=now, lifetime=_LIFETIME)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "server.pem"
        path.write_bytes(pair.certificate + pair.key)
        context.load_cert_chain(path)
    return context, authority.certificate.decode()
