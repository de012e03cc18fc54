"""Tokens of ServiceAccounts: JSON Web Tokens, signed with the cluster's key and checked against the live objects."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from kapsa.devcluster.embedded.authorization.rules import quoted
from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.codec.stored_form import decode
from kapsa.devcluster.embedded.storage.store import Stored
from kapsa.devcluster.wire.exchange import RequestUser
from kapsa.schemas.go_format import quote

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

__all__ = ["ISSUER", "AcceptedToken", "BoundObject", "TokenError", "Tokens"]

_LEGACY_ISSUER = "kubernetes/serviceaccount"
_LEGACY = "kubernetes.io/serviceaccount/"
"""Beginning of the claims of a token in a Secret."""
ISSUER = "https://kubernetes.default.svc.cluster.local"
"""The issuer of all tokens, and the audience of tokens for this server."""
_LEEWAY = 60
"""Seconds by which clocks may differ, and for which the token of a deleted object is still valid."""
_REMEMBERED = 1000
_PREFIX = "authentication.kubernetes.io/"
Claims = dict[str, Any]


class TokenError(Exception):
    """A token that is not accepted. The message is the real server's."""


class BoundObject(NamedTuple):
    """The object that a token lives and dies with."""

    field: str
    """Name of the claim: `pod`, `secret` or `node`."""
    name: str
    uid: str
    node: tuple[str, str] | None = None
    """Name and UID of a pod's node."""


class AcceptedToken(NamedTuple):
    """The user of a valid token, and the requested audiences that it has."""

    user: RequestUser
    audiences: list[str]


class Tokens:
    """The tokens that are issued and accepted. Without a key, the first token generates one."""

    def __init__(self, backend: Backend, key: bytes | None = None) -> None:
        """Use a private key in PEM, or a new one."""
        self._backend = backend
        self._pem = key
        self._verified: dict[str, tuple[Claims, RequestUser]] = {}
        """Claims and users of tokens whose signature was checked. The rest is checked each time."""

    @cached_property
    def _key(self) -> EllipticCurvePrivateKey:
        # Few clusters issue tokens, so the import must not slow down the start of the server.
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        if self._pem is None:
            return ec.generate_private_key(ec.SECP256R1())
        key = load_pem_private_key(self._pem, None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return key

    @cached_property
    def _key_id(self) -> str:
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        public = self._key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return _encode(hashlib.sha256(public).digest())

    def key_set(self) -> dict[str, Any]:
        """Return the JSON Web Key Set with the public key."""
        numbers = self._key.public_key().public_numbers()
        key = {"use": "sig", "kty": "EC", "kid": self._key_id, "crv": "P-256", "alg": "ES256"}
        return {"keys": [{**key, "x": _encode(numbers.x.to_bytes(32)), "y": _encode(numbers.y.to_bytes(32))}]}

    # Issuing

    def issue(
        self,
        account: Stored,
        *,
        audiences: Sequence[str],
        seconds: int,
        warn_after: int = 0,
        bound: BoundObject | None = None,
    ) -> str:
        """Return a token of a ServiceAccount."""
        now = int(self._backend.clock.now().timestamp())
        private: Claims = {"namespace": account.namespace}
        if bound is not None:
            private[bound.field] = {"name": bound.name, "uid": bound.uid}
            if bound.node is not None:
                private["node"] = {"name": bound.node[0], **({"uid": bound.node[1]} if bound.node[1] else {})}
        private["serviceaccount"] = {"name": account.name, "uid": account.uid}
        if warn_after:
            private["warnafter"] = now + warn_after
        claims = {
            "aud": list(audiences),
            "exp": now + seconds,
            "iat": now,
            "iss": ISSUER,
            "jti": self._backend.new_uid(),
            "kubernetes.io": dict(sorted(private.items())),
            "nbf": now,
            "sub": f"system:serviceaccount:{account.namespace}:{account.name}",
        }
        return self._sign(claims)

    def issue_for_secret(self, account: Stored, secret: str) -> str:
        """Return a token of a ServiceAccount that is valid as long as a Secret holds it."""
        return self._sign(
            {
                "iss": _LEGACY_ISSUER,
                f"{_LEGACY}namespace": account.namespace,
                f"{_LEGACY}secret.name": secret,
                f"{_LEGACY}service-account.name": account.name,
                f"{_LEGACY}service-account.uid": account.uid,
                "sub": f"system:serviceaccount:{account.namespace}:{account.name}",
            }
        )

    def _sign(self, claims: Claims) -> str:
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
        from cryptography.hazmat.primitives.hashes import SHA256

        header = msgspec.json.encode({"alg": "ES256", "kid": self._key_id})
        signed = f"{_encode(header)}.{_encode(msgspec.json.encode(claims))}"
        first, second = decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(SHA256())))
        return f"{signed}.{_encode(first.to_bytes(32) + second.to_bytes(32))}"

    # Accepting

    def accept(self, token: str, audiences: Sequence[str] = ()) -> AcceptedToken:
        """Return the user of a token. Raises TokenError for one that is not valid now, for these audiences."""
        claims, user = self._verified.get(token) or self._remember(token, self._verify(token))
        requested = list(audiences) or [ISSUER]
        is_legacy = claims["iss"] == _LEGACY_ISSUER
        # A token in a Secret names no audience: it is for this server.
        given = [ISSUER] if is_legacy else claims["aud"]
        shared = [each for each in given if each in requested]
        if not shared:
            raise _rejected(
                f"token audiences {quoted(given)} is invalid for the target audiences {quoted(requested)}"
            )
        if is_legacy:
            self._check_secret(token, claims)
        else:
            self._check(claims)
        return AcceptedToken(user, shared)

    def _remember(self, token: str, claims: Claims) -> tuple[Claims, RequestUser]:
        if len(self._verified) >= _REMEMBERED:
            self._verified.clear()
        self._verified[token] = verified = (claims, _user_of(claims))
        return verified

    def _verify(self, token: str) -> Claims:
        """Return the claims of a token that this cluster has signed."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
        from cryptography.hazmat.primitives.hashes import SHA256

        claims = _claims_of(token)
        if claims is None or claims.get("iss") not in (ISSUER, _LEGACY_ISSUER):
            raise TokenError("invalid bearer token")
        signed, _, signature = token.rpartition(".")
        try:
            header, raw = msgspec.json.decode(_decode(signed.partition(".")[0])), _decode(signature)
        except (ValueError, msgspec.MsgspecError):
            raise TokenError("invalid bearer token") from None
        if not isinstance(header, dict):
            raise TokenError("invalid bearer token")
        # A token that names no key is checked with every key, and there is one.
        if header.get("kid", self._key_id) != self._key_id:
            raise _rejected("invalid signature, no keys found")
        encoded = encode_dss_signature(int.from_bytes(raw[:32]), int.from_bytes(raw[32:]))
        try:
            self._key.public_key().verify(encoded, signed.encode(), ec.ECDSA(SHA256()))
        except InvalidSignature:
            raise _rejected("go-jose/go-jose: error in cryptographic primitive") from None
        return claims

    def _check(self, claims: Claims) -> None:
        """Raise TokenError for a token that is not valid at this time, or whose objects no longer exist."""
        now = self._backend.clock.now().timestamp()
        if now - _LEEWAY > claims["exp"]:
            raise _rejected("service account token has expired")
        if now + _LEEWAY < claims["nbf"]:
            raise _rejected("service account token is not valid yet")
        private = claims["kubernetes.io"]
        namespace = private["namespace"]
        self._check_account(namespace, private["serviceaccount"])
        if "secret" in private:
            self._check_bound("secret", "secrets", namespace, private["secret"])
        if "pod" in private:
            self._check_bound("pod", "pods", namespace, private["pod"])
        elif "node" in private:
            self._check_bound("node", "nodes", "", private["node"])

    def _check_secret(self, token: str, claims: Claims) -> None:
        """Check a token in a Secret. Raises TokenError unless the Secret still holds it."""
        namespace, secret, name, uid = (
            claims[f"{_LEGACY}{field}"]
            for field in ("namespace", "secret.name", "service-account.name", "service-account.uid")
        )
        stored = self._live("secrets", namespace, secret)
        if stored is None or b'"deletionTimestamp":"' in stored.body:
            raise _rejected("Token has been invalidated")
        held = base64.b64decode((decode(stored).get("data") or {}).get("token") or "")
        if not hmac.compare_digest(held, token.encode()):
            raise _rejected("Token does not match server's copy")
        account = self._live("serviceaccounts", namespace, name)
        if account is None:
            raise _rejected(f"serviceaccounts {quote(name)} not found")
        if b'"deletionTimestamp":"' in account.body:
            raise _rejected(f"ServiceAccount {namespace}/{name} has been deleted")
        if account.uid != uid:
            raise _rejected(f"ServiceAccount UID ({account.uid}) does not match claim ({uid})")

    def _check_account(self, namespace: str, account: Claims) -> None:
        name = account["name"]
        stored = self._live("serviceaccounts", namespace, name)
        if stored is None:
            raise _rejected(f"serviceaccounts {quote(name)} not found")
        if stored.uid != account["uid"]:
            raise _rejected(f"service account UID ({stored.uid}) does not match claim ({account['uid']})")
        if self._is_gone(stored):
            raise _rejected(f"service account {namespace}/{name} has been deleted")

    def _check_bound(self, field: str, resource: str, namespace: str, reference: Claims) -> None:
        stored = self._live(resource, namespace, reference["name"])
        if stored is not None and stored.uid != reference["uid"]:
            raise _rejected(
                f"{field} UID ({stored.uid}) does not match service account {field} ref claim ({reference['uid']})"
            )
        if stored is None or self._is_gone(stored):
            raise _rejected("service account token has been invalidated")

    def _live(self, resource: str, namespace: str, name: str) -> Stored | None:
        key = f"{namespace}/{name}" if namespace else name
        return self._backend.store.collection("", resource).get(key)

    def _is_gone(self, stored: Stored) -> bool:
        """Return whether a deletion has been due for longer than the leeway."""
        if b'"deletionTimestamp":"' not in stored.body:
            return False
        due = decode(stored)["metadata"].get("deletionTimestamp")
        if not due:
            return False
        moment = msgspec.convert(due, type(self._backend.clock.now())).timestamp()
        return bool(moment < self._backend.clock.now().timestamp() - _LEEWAY)


def _user_of(claims: Claims) -> RequestUser:
    """Return the user that the claims of a token name."""
    if claims["iss"] == _LEGACY_ISSUER:
        return _account_user(
            claims, claims[f"{_LEGACY}namespace"], claims[f"{_LEGACY}service-account.uid"], {}
        )
    private = claims["kubernetes.io"]
    extra = {f"{_PREFIX}credential-id": [f"JTI={claims['jti']}"]}
    for field in ("pod", "node"):
        if field in private:
            extra[f"{_PREFIX}{field}-name"] = [private[field]["name"]]
            if private[field].get("uid"):
                extra[f"{_PREFIX}{field}-uid"] = [private[field]["uid"]]
    return _account_user(claims, private["namespace"], private["serviceaccount"]["uid"], extra)


def _account_user(claims: Claims, namespace: str, uid: str, extra: dict[str, list[str]]) -> RequestUser:
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return RequestUser(username=claims["sub"], uid=uid, groups=groups, extra=extra)


def _rejected(why: str) -> TokenError:
    return TokenError(f"[invalid bearer token, {why}]")


def _claims_of(token: str) -> Claims | None:
    """Return the claims of a token before its signature is checked; None if it has none."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = msgspec.json.decode(_decode(parts[1]))
    except (ValueError, msgspec.MsgspecError):
        return None
    return claims if isinstance(claims, dict) else None


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    """Decode a part of a token. Raises ValueError for padding and for characters that are not of the alphabet."""
    if "=" in text or "+" in text or "/" in text:
        raise ValueError("a part of a token is base64url without padding")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None
