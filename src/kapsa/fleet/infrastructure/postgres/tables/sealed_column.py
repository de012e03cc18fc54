"""The column of a sealed secret, by which key rotation finds all of them."""

from typing import Any

from sqlalchemy import LargeBinary
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

from kapsa.fleet.orchestrator.ports.vault import SealedSecret, VaultError

__all__ = ["SealedColumn", "envelope_prefix"]

_FORMAT = 1
_WRAPPED_KEY = 40
_NONCE = 12


class SealedColumn(TypeDecorator[SealedSecret]):
    """A `bytea` with a SealedSecret: format, key id, wrapped data key, nonce, ciphertext."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: SealedSecret | None, dialect: Dialect) -> bytes | None:
        return None if value is None else _encode(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> SealedSecret | None:
        return None if value is None else _decode(bytes(value))


def envelope_prefix(key_id: str) -> bytes:
    """Return the first bytes of every secret under this key."""
    name = key_id.encode()
    return bytes((_FORMAT, len(name))) + name


def _encode(sealed: SealedSecret) -> bytes:
    if len(sealed.wrapped_key) != _WRAPPED_KEY or len(sealed.nonce) != _NONCE:
        raise ValueError("a sealed secret has a wrapped key of 40 bytes and a nonce of 12")
    return envelope_prefix(sealed.key_id) + sealed.wrapped_key + sealed.nonce + sealed.ciphertext


def _decode(stored: bytes) -> SealedSecret:
    if len(stored) < 2 or stored[0] != _FORMAT:
        raise VaultError("a sealed secret has an unknown format: it was changed, or a newer version wrote it")
    key_end = 2 + stored[1]
    nonce_start = key_end + _WRAPPED_KEY
    content = nonce_start + _NONCE
    if len(stored) < content:
        raise VaultError("a sealed secret is too short: it was changed")
    try:
        key_id = stored[2:key_end].decode()
    except UnicodeDecodeError:
        raise VaultError("a sealed secret names no valid key: it was changed") from None
    return SealedSecret(key_id, stored[key_end:nonce_start], stored[nonce_start:content], stored[content:])
