"""The identity of a cluster in its data directory: authority, token key and port.

They make credentials of an earlier run valid in a later one. The keys are readable by their owner only.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from kapsa.devcluster.certificates import Authority, PemPair, signing_key
from kapsa.devcluster.errors import DataDamaged, DataNotWritable

__all__ = ["IdentityFiles"]

_AUTHORITY, _TOKEN_KEY, _PORT = "authority.pem", "token.key", "port"
_Loaded = TypeVar("_Loaded")
_CERTIFICATE_END = b"-----END CERTIFICATE-----\n"


class IdentityFiles:
    """The files of one data directory, which the caller has locked."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def authority(self) -> Authority:
        """Return the authority of the directory, a new one if there is none or it is about to expire.

        Raises DataDamaged for a file that holds no authority.
        """
        content = self._read(_AUTHORITY)
        if content is not None:
            certificate, end, key = content.partition(_CERTIFICATE_END)
            kept = self._load(_AUTHORITY, lambda: Authority(pair=PemPair(certificate + end, key)))
            if not kept.expires_soon:
                return kept
        authority = Authority()
        # One file, so that a crash cannot leave a certificate with the key of another.
        self._write(_AUTHORITY, authority.pair.certificate + authority.pair.key)
        return authority

    def token_key(self) -> bytes:
        """Return the private key of tokens, a new one for a new directory. Raises DataDamaged."""
        content = self._read(_TOKEN_KEY)
        if content is None:
            content = signing_key().key
            self._write(_TOKEN_KEY, content)
        pem = content
        self._load(_TOKEN_KEY, lambda: _private_key(pem))
        return content

    @property
    def port(self) -> int:
        """The port of the last run, 0 if there was none."""
        text = self._read(_PORT) or b""
        return int(text) if text.isdigit() and int(text) < 65536 else 0

    @port.setter
    def port(self, port: int) -> None:
        self._write(_PORT, str(port).encode())

    def _load(self, name: str, load: Callable[[], _Loaded]) -> _Loaded:
        try:
            return load()
        except (ValueError, TypeError) as error:
            path = self._directory / name
            raise DataDamaged(
                f"{path} is damaged: {error}. Delete it to start with a new one; older credentials end with it"
            ) from error

    def _read(self, name: str) -> bytes | None:
        try:
            return (self._directory / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DataNotWritable(f"{self._directory / name} cannot be read: {error.strerror}") from error

    def _write(self, name: str, content: bytes) -> None:
        """Write a file that only its owner can read, whole or not at all."""
        path = self._directory / name
        temporary = path.with_name(f"{name}.new")
        try:
            temporary.unlink(missing_ok=True)
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError as error:
            raise DataNotWritable(f"{path} cannot be written: {error.strerror}") from error


def _private_key(pem: bytes) -> object:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    return load_pem_private_key(pem, None)
