"""Credentials that are written down, as values or as files that may change."""

import base64
from pathlib import Path
from typing import Protocol

import msgspec

from kapsa.runtime.clock import Clock
from kapsa.runtime.errors import CredentialError

__all__ = ["Credential", "CredentialSource", "DeclaredCredentials", "Headers", "RereadFile"]

Headers = tuple[tuple[str, str], ...]
"""Pairs rather than a mapping: a header may occur several times, as Impersonate-Group does."""


class Credential(msgspec.Struct, frozen=True):
    """One credential: a header, a client certificate, or both."""

    headers: Headers = ()
    certificate: bytes | None = None
    key: bytes | None = None


class CredentialSource(Protocol):
    """A source of credentials."""

    async def current(self) -> Credential:
        """Return the current credential: the same object until it changes."""
        ...

    async def rejected(self, used: Credential) -> bool:
        """Record that the server rejected `used`; return whether another attempt may succeed."""
        ...


class RereadFile:
    """A file whose content may change, read again at most once a minute.

    If a later read fails, the last content stays in use: a kubelet that swaps a projected volume must not
    take the operator down.
    """

    def __init__(self, path: Path, *, name: str, clock: Clock, interval: float = 60.0) -> None:
        self.path = path
        self._name = name
        self._clock = clock
        self._interval = interval
        self._content: bytes | None = None
        self._read_at = 0.0

    def read(self) -> bytes:
        """Return the content: the same object until it changes."""
        if self._content is None or self._clock.monotonic() - self._read_at >= self._interval:
            return self.read_now()
        return self._content

    def read_now(self) -> bytes:
        """Return the content that is on disk now."""
        self._read_at = self._clock.monotonic()
        try:
            content = self.path.read_bytes()
        except OSError as error:
            if self._content is None:
                raise CredentialError(f"{self._name}: cannot read {self.path}: {error.strerror}") from error
            return self._content
        if content != self._content:
            self._content = content
        return self._content


class DeclaredCredentials:
    """A token, a client certificate with its key, or a user and password, as values or as files."""

    def __init__(
        self,
        *,
        token: str | None = None,
        token_file: RereadFile | None = None,
        certificate: bytes | RereadFile | None = None,
        key: bytes | RereadFile | None = None,
        username: str | None = None,
        password: str | None = None,
    ) -> None:
        self._token = token
        self._token_file = token_file
        self._certificate = certificate
        self._key = key
        self._basic = basic_header(username, password or "") if username else None
        self._fixed = not any(isinstance(part, RereadFile) for part in (token_file, certificate, key))
        self._current: Credential | None = None

    async def current(self) -> Credential:
        if self._current is None or not self._fixed:
            credential = self._read()
            if credential != self._current:
                self._current = credential
        assert self._current is not None
        return self._current

    async def rejected(self, used: Credential) -> bool:
        if self._token_file is None:
            return False
        self._token_file.read_now()
        return await self.current() is not used

    def _read(self) -> Credential:
        headers: Headers = ()
        if token := self._read_token():
            headers = (bearer_header(token),)
        elif self._basic:
            headers = (self._basic,)
        return Credential(headers, *self.pair())

    def pair(self) -> tuple[bytes | None, bytes | None]:
        """Return the client certificate and its key, if there are any."""
        return content_of(self._certificate), content_of(self._key)

    def _read_token(self) -> str | None:
        """Return the token of the file; until the file can be read, the one given as a value."""
        if self._token_file is None:
            return self._token
        try:
            return self._token_file.read().decode("utf-8", "replace").strip()
        except CredentialError:
            if self._token is None:
                raise
            return self._token


def content_of(part: bytes | RereadFile | None) -> bytes | None:
    """Return the content of a value or a file."""
    return part.read() if isinstance(part, RereadFile) else part


def bearer_header(token: str) -> tuple[str, str]:
    """Return the header of a bearer token. A token with a line break could inject headers."""
    if not token.isascii() or not token.isprintable():
        raise CredentialError(
            "the token contains characters that are not allowed in a token; check it for a line break"
        )
    return ("Authorization", f"Bearer {token}")


def basic_header(username: str, password: str) -> tuple[str, str]:
    """Return the header of a user and password."""
    pair = base64.b64encode(f"{username}:{password}".encode()).decode()
    return ("Authorization", f"Basic {pair}")
