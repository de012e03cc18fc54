"""Ids of credentials, which audit entries have in place of the credential, and the times at which they expire."""

from __future__ import annotations

import base64
import hashlib
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
import pytest
from cryptography import x509

from kapsa.fleet.infrastructure.clusters.kubeconfig_credential import credential_id, valid_until
from kapsa.runtime.testing import issue_certificate, make_authority

NOW = datetime.now(UTC).replace(microsecond=0)
AUTHORITY = make_authority("cluster", now=NOW, lifetime=timedelta(days=90))


def kubeconfig(user: dict[str, Any], authority: bytes = AUTHORITY.certificate) -> bytes:
    cluster = {"server": "https://c.example.com", "certificate-authority-data": _text(authority)}
    return json.dumps({"clusters": [{"cluster": cluster}], "users": [{"user": user}]}).encode()


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def token(**claims: Any) -> str:
    return jwt.encode(claims, "k" * 32, algorithm="HS256")


def test_the_id_of_a_token_is_the_one_in_the_audit_log_of_the_cluster() -> None:
    assert credential_id(kubeconfig({"token": token(jti="7d1c", sub="x")})) == "JTI=7d1c"


@pytest.mark.parametrize("made", ["opaque-token", "a.b.c", "a.!!.c", token(sub="x"), token(jti="a\nb")])
def test_a_token_without_an_id_has_a_part_of_its_hash(made: str) -> None:
    shown = credential_id(kubeconfig({"token": made}))
    assert shown == f"SHA256={hashlib.sha256(made.encode()).hexdigest()[:16]}"


def test_the_id_of_a_client_certificate_is_its_fingerprint() -> None:
    pair = issue_certificate(AUTHORITY, ["admin"], now=NOW, lifetime=timedelta(days=20))
    certificate = x509.load_pem_x509_certificate(pair.certificate)
    content = kubeconfig({"client-certificate-data": _text(pair.certificate)})
    from cryptography.hazmat.primitives.serialization import Encoding

    digest = hashlib.sha256(certificate.public_bytes(Encoding.DER)).hexdigest()
    assert credential_id(content) == f"X509SHA256={digest}"


def test_a_kubeconfig_is_valid_until_the_first_of_its_parts_expires() -> None:
    pair = issue_certificate(AUTHORITY, ["admin"], now=NOW, lifetime=timedelta(days=20))
    by_certificate = kubeconfig({"client-certificate-data": _text(pair.certificate)})
    assert valid_until(by_certificate) == NOW + timedelta(days=20)
    soon = int((NOW + timedelta(hours=8)).timestamp())
    assert valid_until(kubeconfig({"token": token(exp=soon)})) == datetime.fromtimestamp(soon, UTC)
    assert valid_until(kubeconfig({"token": "opaque"})) == NOW + timedelta(days=90)


def test_an_authority_is_valid_as_long_as_its_last_certificate() -> None:
    newer = make_authority("cluster", now=NOW, lifetime=timedelta(days=400))
    bundle = AUTHORITY.certificate + newer.certificate
    assert valid_until(kubeconfig({"token": "opaque"}, bundle)) == NOW + timedelta(days=400)


@pytest.mark.parametrize("exp", [-5, 0, 10**30, "soon", None])
def test_an_expiry_that_is_not_a_time_is_ignored(exp: Any) -> None:
    content = json.dumps({"exp": exp}).encode()
    made = f"a.{base64.urlsafe_b64encode(content).decode().rstrip('=')}.c"
    assert valid_until(kubeconfig({"token": made})) == NOW + timedelta(days=90)
