"""Certificates and their rotation, over years."""

import ssl
from datetime import UTC, datetime, timedelta

import pytest

from kapsa.runtime import Lifetimes
from kapsa.runtime.client.auth.tls import client_context, present
from kapsa.runtime.webhooks.certificates import (
    CertificatePair,
    CertificateState,
    advance,
    issue_certificate,
    make_authority,
    valid_until,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ["webhook.operators.svc", "webhook.operators.svc.cluster.local"]
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def trusted(bundle: bytes, serving: CertificatePair, name: str) -> bool:
    """Return whether a client that trusts `bundle` accepts `serving` under `name`."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    present(server, serving.certificate, serving.key)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context(ca=bundle)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(10):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                return False
    return True


def test_an_issued_certificate_is_trusted_under_its_names_only() -> None:
    now = datetime.now(UTC)
    authority = make_authority("test", now=now, lifetime=DAY)
    pair = issue_certificate(authority, [*NAMES, "127.0.0.1"], now=now, lifetime=DAY)
    for name in (*NAMES, "127.0.0.1"):
        assert trusted(authority.certificate, pair, name)
    assert not trusted(authority.certificate, pair, "other.svc")
    stranger = make_authority("test", now=now, lifetime=DAY)
    assert not trusted(stranger.certificate, pair, NAMES[0])


def test_nothing_changes_while_nothing_is_due() -> None:
    state = advance(None, NAMES, NOW)
    assert advance(state, NAMES, NOW + timedelta(days=30)) is state


def test_the_serving_certificate_is_renewed_after_two_thirds_of_its_lifetime_by_the_same_authority() -> None:
    state = advance(None, NAMES, NOW)
    renewed = advance(state, NAMES, NOW + timedelta(days=61))
    assert renewed.serving != state.serving
    assert renewed.bundle == state.bundle


def test_new_names_get_a_new_serving_certificate_at_once() -> None:
    state = advance(None, NAMES, NOW)
    renewed = advance(state, [*NAMES, "new.svc"], NOW + HOUR)
    assert renewed.serving != state.serving
    assert renewed.authority == state.authority


def test_a_new_authority_is_published_before_anything_is_signed_with_it() -> None:
    times = Lifetimes()
    state = advance(None, NAMES, NOW, times)
    due = NOW + timedelta(days=250)
    # Just renewed, so that only the authority is due.
    state = advance(state, NAMES, due - timedelta(days=7), times)
    published = advance(state, NAMES, due, times)
    assert published.serving == state.serving
    assert published.bundle.count(b"BEGIN CERTIFICATE") == 2
    assert state.authority.certificate in published.bundle
    soon = advance(published, NAMES, due + times.overlap / 2, times)
    assert soon is published
    signed = advance(published, NAMES, due + times.overlap, times)
    assert signed.serving != published.serving
    assert signed.bundle == published.bundle


def test_over_five_years_each_certificate_is_trusted_by_a_client_with_the_previous_bundle() -> None:
    """The bundle reaches clients some time after it changed: the one of the step before must always do."""
    shift = datetime.now(UTC) - NOW  # certificates are judged by the machine's clock

    times = Lifetimes(authority=timedelta(days=400), serving=timedelta(days=400), overlap=HOUR)
    now = NOW + shift
    state: CertificateState = advance(None, NAMES, now, times)
    steps = rotations = 0
    while steps < 5 * 365:
        moment = NOW + shift + timedelta(days=steps)
        following = advance(state, NAMES, moment, times)
        if following is not state:
            rotations += 1
            assert _issuer(following.serving.certificate) in _subjects(state.bundle)
            assert valid_until(following.serving.certificate) > moment
        state = following
        steps += 1
    assert rotations >= 10


def _issuer(pem: bytes) -> str:
    from cryptography import x509

    return x509.load_pem_x509_certificate(pem).issuer.rfc4514_string()


def _subjects(bundle: bytes) -> set[str]:
    from cryptography import x509

    return {certificate.subject.rfc4514_string() for certificate in x509.load_pem_x509_certificates(bundle)}


def test_the_previous_authority_is_dropped_when_it_expires() -> None:
    times = Lifetimes()
    state = advance(None, NAMES, NOW, times)
    first = state.authority.certificate
    for day in range(0, 400, 5):
        state = advance(state, NAMES, NOW + timedelta(days=day), times)
    assert first not in state.bundle


def test_a_key_is_never_logged() -> None:
    pair = make_authority("test", now=NOW, lifetime=DAY)
    assert "PRIVATE" not in repr(advance(None, NAMES, NOW))
    assert "PRIVATE" not in f"{pair}"


def test_an_authority_with_another_kind_of_key_cannot_sign() -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519

    key = ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    authority = make_authority("test", now=NOW, lifetime=DAY)
    with pytest.raises(TypeError, match="must be an elliptic curve key"):
        issue_certificate(CertificatePair(authority.certificate, key), NAMES, now=NOW, lifetime=DAY)
