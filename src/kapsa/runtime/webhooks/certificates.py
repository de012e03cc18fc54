"""Self-signed certificates: an authority, the certificates it issues, and their rotation.

The rotation is a pure function of the state and the time (`advance`), so all replicas reach the same result
and a test can step through years. cryptography is imported where it is used: an operator without webhooks
never loads it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

__all__ = [
    "CertificatePair",
    "CertificateState",
    "Lifetimes",
    "advance",
    "issue_certificate",
    "make_authority",
]

_CLOCK_SKEW = timedelta(hours=1)
"""Certificates are valid from this far in the past, for clients whose clock is behind."""


class CertificatePair(msgspec.Struct, frozen=True):
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "CertificatePair(...)"  # keep the key out of logs


class Lifetimes(msgspec.Struct, frozen=True):
    """Lifetimes of certificates. Each is renewed after two thirds of its lifetime."""

    authority: timedelta = timedelta(days=365)
    serving: timedelta = timedelta(days=90)
    overlap: timedelta = timedelta(hours=1)
    """The time between publishing a new authority and signing with it, so that all clients trust it by then.
    """


class CertificateState(msgspec.Struct, frozen=True):
    """The certificates of a server, as kept in its Secret."""

    authority: CertificatePair
    serving: CertificatePair
    previous: bytes = b""
    """The certificate of the previous authority, trusted until it expires."""

    @property
    def bundle(self) -> bytes:
        """The CA bundle that clients must trust, as PEM."""
        return self.authority.certificate + self.previous

    def check(self) -> None:
        """Raise `ValueError` if a part cannot be parsed."""
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        for certificate in filter(
            None, (self.authority.certificate, self.serving.certificate, self.previous)
        ):
            _load(certificate)
        for key in (self.authority.key, self.serving.key):
            load_pem_private_key(key, password=None)


def advance(
    state: CertificateState | None, names: Sequence[str], now: datetime, lifetimes: Lifetimes | None = None
) -> CertificateState:
    """Return the state for the present time: `state` itself if nothing is due."""
    times = lifetimes or Lifetimes()
    if state is None:
        authority = make_authority("kapsa webhook authority", now=now, lifetime=times.authority)
        return CertificateState(
            authority, issue_certificate(authority, names, now=now, lifetime=times.serving)
        )
    authority_certificate = _load(state.authority.certificate)
    serving = _load(state.serving.certificate)
    signed_by_authority = serving.issuer == authority_certificate.subject
    published = authority_certificate.not_valid_before_utc + _CLOCK_SKEW
    may_sign = signed_by_authority or now - published >= times.overlap
    stale = not signed_by_authority or _due(serving, now) or set(_names(serving)) != set(names)
    if stale and (may_sign or now >= serving.not_valid_after_utc):
        fresh = issue_certificate(state.authority, names, now=now, lifetime=times.serving)
        state = msgspec.structs.replace(state, serving=fresh)
        signed_by_authority = True
    if state.previous and now >= _load(state.previous).not_valid_after_utc:
        state = msgspec.structs.replace(state, previous=b"")
    if signed_by_authority and _due(authority_certificate, now):
        state = msgspec.structs.replace(
            state,
            authority=make_authority("kapsa webhook authority", now=now, lifetime=times.authority),
            previous=state.authority.certificate,
        )
    return state


def make_authority(name: str, *, now: datetime, lifetime: timedelta) -> CertificatePair:
    """Create a certificate authority."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    # Clients find the issuer by its name, so the serial number in it distinguishes one authority from the
    # next.
    serial = x509.random_serial_number()
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, name),
            x509.NameAttribute(NameOID.SERIAL_NUMBER, f"{serial:x}"[:16]),
        ]
    )
    builder = (
        _builder(subject, subject, key, now, lifetime, serial)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(sign=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _pair(builder, key, key)


def issue_certificate(
    authority: CertificatePair,
    names: Sequence[str],
    *,
    now: datetime,
    lifetime: timedelta,
    usage: Literal["server", "client"] = "server",
    organizations: Sequence[str] = (),
) -> CertificatePair:
    """Issue a certificate for host names or IP addresses. The first is the common name."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    issuer = _load(authority.certificate)
    signer = load_pem_private_key(authority.key, password=None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise TypeError("the key of the authority must be an elliptic curve key")
    key = ec.generate_private_key(ec.SECP256R1())
    # A common name is limited to 64 characters. Clients check the alternative names.
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in organizations]
    attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64]))
    purpose = ExtendedKeyUsageOID.SERVER_AUTH if usage == "server" else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = (
        _builder(issuer.subject, x509.Name(attributes), key, now, lifetime, x509.random_serial_number())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(sign=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    if usage == "server":
        alternatives = x509.SubjectAlternativeName([_alternative(name) for name in names])
        builder = builder.add_extension(alternatives, critical=False)
    return _pair(builder, key, signer)


def valid_until(certificate: bytes) -> datetime:
    """Return the time at which a PEM certificate expires."""
    return _load(certificate).not_valid_after_utc


def _load(pem: bytes) -> x509.Certificate:
    from cryptography import x509

    return x509.load_pem_x509_certificate(pem)


def _due(certificate: x509.Certificate, now: datetime) -> bool:
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return now >= start + (end - start) * 2 / 3


def _names(certificate: x509.Certificate) -> list[str]:
    from cryptography import x509

    extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return [str(name.value) for name in extension.value]


def _alternative(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(
    issuer: x509.Name,
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    lifetime: timedelta,
    serial: int,
) -> x509.CertificateBuilder:
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + lifetime)
    )


def _usage(*, sign: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=sign,
        crl_sign=sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pair(
    builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey, signer: ec.EllipticCurvePrivateKey
) -> CertificatePair:
    from cryptography.hazmat.primitives import hashes, serialization

    certificate = builder.sign(signer, hashes.SHA256())
    return CertificatePair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
