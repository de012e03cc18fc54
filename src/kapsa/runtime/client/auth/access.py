"""Access to a cluster: its address, the credentials and the TLS trust that each request uses."""

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kapsa.runtime.client.auth.credentials import (
    Credential,
    CredentialSource,
    DeclaredCredentials,
    Headers,
    RereadFile,
    content_of,
)
from kapsa.runtime.client.auth.tls import client_context
from kapsa.runtime.errors import ConfigError

__all__ = ["AddressGuard", "Authorization", "ClusterAccess", "RotatingAccess", "StaticAccess"]

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


class ClusterAccess(Protocol):
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


class RotatingAccess:
    """Access whose parts may change: rotated tokens, certificates and authorities are picked up as they change."""

    def __init__(
        self,
        server: str,
        credentials: CredentialSource,
        *,
        authority: bytes | RereadFile | None = None,
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
