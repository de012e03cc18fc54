"""Who we are to a cluster, and whom we trust: what a transport asks before each request."""

import base64
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kapsa.runtime.client.auth.tls import client_context
from kapsa.runtime.clock import Clock
from kapsa.runtime.errors import ConfigError, CredentialError

__all__ = [
    "Access",
    "Authorization",
    "ClusterAccess",
    "Credential",
    "CredentialSource",
    "DeclaredCredentials",
    "RereadFile",
    "StaticAccess",
]

Headers = tuple[tuple[str, str], ...]
"""Pairs, because one header may come several times: each group someone impersonates is one."""

AddressGuard = Callable[[str], None]
"""Told each IP address right before a connection to it; raises to forbid it."""


@dataclass(frozen=True, slots=True)
class Authorization:
    """What one request carries: headers that say who asks, and the TLS context it travels in.

    The context is the same object for as long as nothing changed, so that connections are shared.
    """

    headers: Headers = ()
    tls: ssl.SSLContext | bool = True
    """A context, or True for the system's trust store."""


class Access(Protocol):
    """The way to one cluster."""

    @property
    def server(self) -> str:
        """Where the API server is, such as `https://10.0.0.1:6443`, without a trailing slash."""
        ...

    @property
    def server_name(self) -> str | None:
        """The name its certificate must carry, when it is not the one in `server`."""
        ...

    @property
    def proxy(self) -> str | None:
        """The proxy to go through."""
        ...

    @property
    def address_guard(self) -> AddressGuard | None:
        """What judges each address we connect to, when `server` comes from someone we do not trust."""
        ...

    async def authorize(self) -> Authorization:
        """What the next request carries; renews what has expired."""
        ...

    async def rejected(self, used: Authorization) -> bool:
        """Told that the server answered 401 to `used`. True if `authorize` may now give something better."""
        ...


@dataclass(frozen=True, slots=True)
class StaticAccess:
    """Access that never changes: a server, fixed headers, one TLS context."""

    server: str
    authorization: Authorization = Authorization()
    server_name: str | None = None
    proxy: str | None = None
    address_guard: AddressGuard | None = None

    async def authorize(self) -> Authorization:
        return self.authorization

    async def rejected(self, used: Authorization) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Credential:
    """What proves who we are: a header, a client certificate, or both."""

    headers: Headers = ()
    certificate: bytes | None = None
    key: bytes | None = None


class CredentialSource(Protocol):
    """Where credentials come from."""

    async def current(self) -> Credential:
        """The credential to use now: the very same object while nothing changed."""
        ...

    async def rejected(self, used: Credential) -> bool:
        """Told that the server did not accept `used`. True if `current` may now give another."""
        ...


class ClusterAccess:
    """Access whose parts may change: rotated tokens, certificates and authorities are picked up as they change."""

    def __init__(
        self,
        server: str,
        credentials: CredentialSource,
        *,
        authority: "bytes | RereadFile | None" = None,
        insecure: bool = False,
        server_name: str | None = None,
        proxy: str | None = None,
        impersonate: Headers = (),
        address_guard: AddressGuard | None = None,
        origin: str = "",
    ) -> None:
        if insecure and authority is not None:
            raise ConfigError(
                "insecure-skip-tls-verify and a certificate authority contradict each other; remove one"
            )
        self.server = server.rstrip("/")
        self.server_name = server_name
        self.proxy = proxy
        self.address_guard = address_guard
        self._credentials = credentials
        self._authority = authority
        self._insecure = insecure
        self._impersonate = impersonate
        self._origin = origin
        """Where all this was written down, for errors: file and context."""
        self._made: tuple[Credential, bytes | None, Authorization] | None = None

    def check(self) -> None:
        """Raise now what would fail at every request: an authority, or a certificate and key, that are none."""
        declared = self._credentials if isinstance(self._credentials, DeclaredCredentials) else None
        certificate, key = declared.pair() if declared is not None else (None, None)
        if self._authority is not None or certificate is not None:
            self._tls(Credential((), certificate, key), content_of(self._authority))

    async def authorize(self) -> Authorization:
        credential = await self._credentials.current()
        authority = content_of(self._authority)
        if self._made is not None and self._made[0] is credential and self._made[1] is authority:
            return self._made[2]
        authorization = Authorization(
            (*credential.headers, *self._impersonate), self._tls(credential, authority)
        )
        self._made = (credential, authority, authorization)
        return authorization

    async def rejected(self, used: Authorization) -> bool:
        if self._made is None or self._made[2] is not used:
            return True  # someone else has renewed it meanwhile
        return await self._credentials.rejected(self._made[0])

    def _tls(self, credential: Credential, authority: bytes | None) -> ssl.SSLContext | bool:
        if self.server.startswith("http://"):
            return True  # no TLS, so no trust store to load
        if self._made is not None:
            before, trusted, authorization = self._made
            unchanged = (before.certificate, before.key, trusted) == (
                credential.certificate,
                credential.key,
                authority,
            )
            if unchanged and isinstance(authorization.tls, ssl.SSLContext):
                return authorization.tls  # only a header changed: keep the connections
        try:
            return client_context(
                ca=authority, certificate=credential.certificate, key=credential.key, insecure=self._insecure
            )
        except ConfigError as error:
            raise ConfigError(f"{self._origin}: {error}" if self._origin else str(error)) from error


class RereadFile:
    """A file whose content may change under us, looked at again at most once a minute.

    If it can't be read later on, the last content stays in use: a kubelet that swaps a projected volume must not
    take the operator down.
    """

    def __init__(self, path: Path, *, what: str, clock: Clock, every: float = 60.0) -> None:
        self.path = path
        self._what = what
        self._clock = clock
        self._every = every
        self._content: bytes | None = None
        self._read_at = 0.0

    def read(self) -> bytes:
        """The content; the very same object while it has not changed."""
        if self._content is None or self._clock.monotonic() - self._read_at >= self._every:
            return self.read_now()
        return self._content

    def read_now(self) -> bytes:
        """The content as it is on disk at this moment."""
        self._read_at = self._clock.monotonic()
        try:
            content = self.path.read_bytes()
        except OSError as error:
            if self._content is None:
                raise CredentialError(f"{self._what} can't be read: {error.strerror}: {self.path}") from error
            return self._content
        if content != self._content:
            self._content = content
        return self._content


class DeclaredCredentials:
    """Credentials written down: a token, a certificate and its key, a user and password; as values or as files."""

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
        """The client certificate and its key, if that is how we prove who we are."""
        return content_of(self._certificate), content_of(self._key)

    def _read_token(self) -> str | None:
        """The file's token goes before the written one, which stands in until the file can be read."""
        if self._token_file is None:
            return self._token
        try:
            return self._token_file.read().decode("utf-8", "replace").strip()
        except CredentialError:
            if self._token is None:
                raise
            return self._token


def content_of(part: bytes | RereadFile | None) -> bytes | None:
    """What was given as a value or as a file."""
    return part.read() if isinstance(part, RereadFile) else part


def bearer_header(token: str) -> tuple[str, str]:
    """The header of a bearer token. A token with a line break would smuggle headers in."""
    if not token.isascii() or not token.isprintable():
        raise CredentialError("the token holds characters that no token has (a line break in the middle?)")
    return ("Authorization", f"Bearer {token}")


def basic_header(username: str, password: str) -> tuple[str, str]:
    """The header of a user and password."""
    pair = base64.b64encode(f"{username}:{password}".encode()).decode()
    return ("Authorization", f"Basic {pair}")
