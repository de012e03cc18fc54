"""Tokens: JSON Web Tokens, verified against one key, one algorithm, one issuer and one audience."""

import base64
import binascii
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import jwt
import msgspec

from kapsa.fleet.api.authentication.callers import Caller
from kapsa.fleet.api.authentication.keys import TokenKeys
from kapsa.fleet.api.authentication.roles import principal_of

__all__ = ["InvalidToken", "TokenVerifier"]

_LARGEST = 8 * 1024
_LATE = 30.0
"""Seconds after its end for which a token is still accepted."""
_EARLY = 60.0
"""Seconds before its beginning from which a token is accepted: a manager may be behind the issuer by a minute."""
_LONGEST_SUBJECT = 256
_LONGEST_KEY_ID = 256
_REQUIRED = ("exp", "nbf", "iss", "aud", "sub")
_HEADERS = frozenset({"alg", "typ", "kid", "x5t", "x5t#S256"})
"""Header fields that a token may have. All others are refused: they carry or name keys, or change the rules."""
_TYPES = ("JWT", "AT+JWT")


class InvalidToken(Exception):  # noqa: N818 - the name says what happened
    """A token that is not accepted. The message is for its bearer, and does not contain it."""


class TokenVerifier:
    """A verifier of the tokens of one issuer for one audience."""

    def __init__(
        self,
        keys: TokenKeys,
        *,
        issuer: str,
        audience: str,
        roles_claim: str = "roles",
        required: tuple[str, ...] = _REQUIRED,
        now: Callable[[], float] = lambda: datetime.now(UTC).timestamp(),
    ) -> None:
        self._keys = keys
        self._issuer = issuer
        self._audience = audience
        self._roles_claim = roles_claim
        self._required = required
        self._now = now

    async def caller(self, token: str) -> Caller:
        """Return the caller that a token stands for.

        Raises InvalidToken with the reason.
        """
        claims = await self.claims(token)
        principal = principal_of(claims, self._roles_claim)
        return Caller(principal=principal, expires_at=datetime.fromtimestamp(claims["exp"], UTC))

    async def claims(self, token: str) -> Mapping[str, Any]:
        """Return the claims of a token.

        Raises InvalidToken with the reason.
        """
        header = _header(token)
        key_id = _key_id(header)
        key = await self._keys.find(key_id)
        if key is None:
            raise InvalidToken("the token is signed with an unknown key")
        if header.get("alg") != key.algorithm:
            raise InvalidToken(f"the token must be signed with {key.algorithm}, as its key is")
        try:
            claims = jwt.decode(
                token,
                key.key,
                algorithms=[key.algorithm],
                audience=self._audience,
                issuer=self._issuer,
                options={
                    "require": list(self._required),
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                },
            )
        except jwt.PyJWTError as error:
            raise InvalidToken(_reason(error)) from None
        except (ValueError, TypeError, OverflowError, RecursionError):
            raise InvalidToken("the token is malformed") from None
        self._check_times(claims)
        _check_subject(claims["sub"])
        return claims

    def _check_times(self, claims: Mapping[str, Any]) -> None:
        for name in ("exp", "nbf", "iat"):
            if name in claims and not _is_time(claims[name]):
                raise InvalidToken(f"the claim {name} is not a time")
        now = self._now()
        if now >= claims["exp"] + _LATE:
            raise InvalidToken("the token has expired")
        if now < max(claims.get("nbf", 0), claims.get("iat", 0)) - _EARLY:
            raise InvalidToken("the token is not valid yet")


def _header(token: str) -> dict[str, Any]:
    if len(token) > _LARGEST:
        raise InvalidToken(f"the token is larger than {_LARGEST // 1024} KB")
    parts = token.split(".")
    if len(parts) != 3 or not token.isascii():
        raise InvalidToken("the token is not a signed JWT")
    try:
        packed = base64.b64decode(parts[0] + "=" * (-len(parts[0]) % 4), altchars=b"-_", validate=True)
        header = msgspec.json.decode(packed, type=dict[str, Any])
    except (binascii.Error, ValueError, RecursionError):
        raise InvalidToken("the token is malformed") from None
    if unknown := sorted(header.keys() - _HEADERS):
        raise InvalidToken(f"the token has the header {unknown[0][:40]!r}, which is not accepted")
    kind = header.get("typ", "JWT")
    if not isinstance(kind, str) or kind.upper() not in _TYPES:
        raise InvalidToken("the token is not of type JWT")
    return header


def _key_id(header: Mapping[str, Any]) -> str | None:
    key_id = header.get("kid")
    if key_id is None:
        return None
    if not isinstance(key_id, str) or not 0 < len(key_id) <= _LONGEST_KEY_ID or not key_id.isprintable():
        raise InvalidToken("the key id of the token is malformed")
    return key_id


def _reason(error: jwt.PyJWTError) -> str:
    match error:
        case jwt.MissingRequiredClaimError():
            return f"the token has no claim {error.claim}"
        case jwt.InvalidAudienceError():
            return "the token is for another audience"
        case jwt.InvalidIssuerError():
            return "the token is of another issuer"
        case jwt.InvalidSignatureError():
            return "the signature of the token is not valid"
    return "the token is malformed"


def _is_time(value: Any) -> bool:
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and 0 <= value < 1e11
        and math.isfinite(value)
    )


def _check_subject(subject: Any) -> None:
    if not isinstance(subject, str) or not 0 < len(subject) <= _LONGEST_SUBJECT or not subject.isprintable():
        raise InvalidToken("the subject of the token is malformed")
    if subject.startswith("system:"):
        raise InvalidToken("the subject of the token starts with system:, which is reserved for the manager")
