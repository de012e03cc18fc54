"""Keys that tokens are signed with. The type of a key decides on its one algorithm; a token has no say in it."""

from typing import Any, Protocol

import msgspec
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

__all__ = ["LocalKey", "TokenKey", "TokenKeys", "UnusableKeyError", "token_key"]

_SMALLEST_RSA = 2048


class UnusableKeyError(Exception):
    """A key of a type or size that is not accepted."""


class TokenKey(msgspec.Struct, frozen=True):
    """A public key, and the only algorithm that is accepted with it."""

    algorithm: str
    key: Any


class TokenKeys(Protocol):
    """A source of keys."""

    async def find(self, key_id: str | None) -> TokenKey | None:
        """Return the key with this id, or None if there is none."""
        ...


class LocalKey:
    """The one key of this installation. Its tokens name no key."""

    def __init__(self, key: Ed25519PublicKey) -> None:
        self._key = token_key(key)

    async def find(self, key_id: str | None) -> TokenKey | None:
        """Return the key if the token names none."""
        return self._key if key_id is None else None


def token_key(key: Any) -> TokenKey:
    """Return a public key with its algorithm.

    Raises UnusableKeyError if it is not Ed25519, P-256, or RSA with at least 2048 bits.
    """
    match key:
        case Ed25519PublicKey():
            return TokenKey("EdDSA", key)
        case EllipticCurvePublicKey() if isinstance(key.curve, SECP256R1):
            return TokenKey("ES256", key)
        case RSAPublicKey() if key.key_size >= _SMALLEST_RSA:
            return TokenKey("RS256", key)
    raise UnusableKeyError(f"{type(key).__name__} is not Ed25519, P-256 or RSA with {_SMALLEST_RSA} bits")
