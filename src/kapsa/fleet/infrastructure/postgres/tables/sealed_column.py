"""The column of a sealed secret, by which key rotation finds all of them."""

from typing import Any

from sqlalchemy import LargeBinary
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

from kapsa.fleet.orchestrator.ports.vault import SealedSecret, VaultError

__all__ = ["SealedColumn"]

_FIXED, _SIZED = 1, 2
"""The formats: a wrapped key of 40 bytes, or one of any size, after its length in two bytes."""
_WRAPPED_KEY = 40
_LARGEST_KEY = 65_535
_NONCE = 12


class SealedColumn(TypeDecorator[SealedSecret]):
    """A `bytea` with a SealedSecret: format, key id, wrapped data key, nonce, ciphertext."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: SealedSecret | None, dialect: Dialect) -> bytes | None:
        return None if value is None else _encode(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> SealedSecret | None:
        return None if value is None else _decode(bytes(value))


def _encode(sealed: SealedSecret) -> bytes:
    name, size = sealed.key_id.encode(), len(sealed.wrapped_key)
    if len(name) > 255 or size > _LARGEST_KEY or len(sealed.nonce) != _NONCE:
        raise ValueError("a sealed secret has a key id of at most 255 bytes and a nonce of 12")
    form, length = (_FIXED, b"") if size == _WRAPPED_KEY else (_SIZED, size.to_bytes(2))
    head = bytes((form, len(name))) + name + length
    return head + sealed.wrapped_key + sealed.nonce + sealed.ciphertext


def _decode(stored: bytes) -> SealedSecret:
    if len(stored) < 2 or stored[0] not in (_FIXED, _SIZED):
        raise VaultError("a sealed secret has an unknown format: it was changed, or a newer version wrote it")
    key_end = 2 + stored[1]
    start, size = key_end, _WRAPPED_KEY
    if stored[0] == _SIZED:
        start, size = key_end + 2, int.from_bytes(stored[key_end : key_end + 2])
    nonce_start = start + size
    content = nonce_start + _NONCE
    if len(stored) < content:
        raise VaultError("a sealed secret is too short: it was changed")
    try:
        key_id = stored[2:key_end].decode()
    except UnicodeDecodeError:
        raise VaultError("a sealed secret names no valid key: it was changed") from None
    return SealedSecret(key_id, stored[start:nonce_start], stored[nonce_start:content], stored[content:])
