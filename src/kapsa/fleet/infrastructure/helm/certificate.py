"""The certificate of the gate: helm sends its token over TLS only, and trusts this certificate alone."""

import ipaddress
import os
import ssl
import tempfile
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

__all__ = ["gate_certificate"]

_LIFETIME = timedelta(days=3650)
"""Longer than any process runs. The key is in the memory of this process alone."""
_CLOCK_SKEW = timedelta(days=1)


def gate_certificate(address: str) -> tuple[ssl.SSLContext, bytes]:
    """Return the TLS context of a server at an IP address, and its certificate as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kapsa-fleet-gate")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    # OpenSSL reads certificates from files only. The file is ours alone, and gone at once.
    with tempfile.NamedTemporaryFile(prefix="kapsa-gate-") as file:
        file.write(pem + secret)
        file.flush()
        os.fsync(file.fileno())
        context.load_cert_chain(file.name)
    return context, pem
