"""The credential in a kubeconfig: an id for audit entries, and the time until which it is valid."""

import base64
import binascii
import hashlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256

__all__ = ["credential_id", "valid_until"]

_LONGEST_ID = 100


class _Claims(msgspec.Struct):
    jti: str = ""
    exp: float | None = None


def credential_id(kubeconfig: bytes) -> str:
    """Return an id of the credential, from which nobody can make the credential.

    It is the one that the API server's own audit log has as `authentication.kubernetes.io/credential-id`. A token
    without an id, as clusters before 1.30 issue them, has a part of its hash.
    """
    user = _user(kubeconfig)
    if token := str(user.get("token") or ""):
        claims = _claims(token)
        if claims.jti and claims.jti.isprintable():
            return f"JTI={claims.jti[:_LONGEST_ID]}"
        return f"SHA256={hashlib.sha256(token.encode()).hexdigest()[:16]}"
    certificates = [*_certificates(user.get("client-certificate-data"))]
    return f"X509SHA256={certificates[0].fingerprint(SHA256()).hex()}" if certificates else ""


def valid_until(kubeconfig: bytes) -> datetime | None:
    """Return the time at which the first of these expires: client certificate, authority, token. None if none does.

    The untrusted loader has accepted the kubeconfig.
    """
    user = _user(kubeconfig)
    cluster = yaml.safe_load(kubeconfig)["clusters"][0]["cluster"]
    moments = [
        # An authority is as good as the last of its certificates: old ones stay in a bundle.
        max((each.not_valid_after_utc for each in _certificates(data)), default=None)
        for data in (user.get("client-certificate-data"), cluster.get("certificate-authority-data"))
    ]
    expiry = _claims(str(user.get("token") or "")).exp
    if expiry is not None and 0 < expiry < datetime.max.replace(tzinfo=UTC).timestamp():
        moments.append(datetime.fromtimestamp(expiry, UTC))
    return min((each for each in moments if each is not None), default=None)


def _user(kubeconfig: bytes) -> Mapping[str, Any]:
    user: Mapping[str, Any] = yaml.safe_load(kubeconfig)["users"][0]["user"]
    return user


def _claims(token: str) -> _Claims:
    """Return the claims of a token, which are for people: nothing is decided by them."""
    part = token.split(".")[1] if token.count(".") == 2 else ""
    try:
        content = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
        return msgspec.json.decode(content, type=_Claims)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        return _Claims()


def _certificates(data: object) -> Iterator[x509.Certificate]:
    try:
        yield from x509.load_pem_x509_certificates(base64.b64decode(str(data or "")))
    except (binascii.Error, ValueError):
        return
