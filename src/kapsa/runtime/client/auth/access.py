"""Access to a cluster: its address, the credentials and the TLS trust that each request uses."""

import ssl
from collections.abc import Callable
from typing import Protocol

import msgspec

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
"""Called with each IP address before a connection to it; raises to forbid the connection."""


class Authorization(msgspec.Struct, frozen=True):
    """The headers and the TLS context that authenticate one request.

    The context is the same object until something changes, so that requests share connections.
    """

    headers: Headers = ()
    tls: ssl.SSLContext | bool = True
    """A context, or True for the system's trust store."""


class ClusterAccess(Protocol):
    """Access to one cluster."""

    @property
    def server(self) -> str:
        """The URL of the API server, such as `https://10.0.0.1:6443`, without a trailing slash."""
        ...

    @property
    def server_name(self) -> str | None:
        """The name that its certificate must carry, if it is not the one in `server`."""
        ...

    @property
    def proxy(self) -> str | None:
        """The URL of the proxy in front of the server, if any."""
        ...

    @property
    def proxy_authority(self) -> bytes | None:
        """The CA, as PEM, that an https proxy is verified against, in addition to the system's."""
        ...

    @property
    def address_guard(self) -> AddressGuard | None:
        """The check of each address to connect to, if `server` comes from an untrusted source."""
        ...

    async def authorize(self) -> Authorization:
        """Return the authorization of the next request, renewing what has expired."""
        ...

    async def rejected(self, used: Authorization) -> bool:
        """Record that the server returned 401 for `used`; return whether another attempt may succeed."""
        ...


class StaticAccess(msgspec.Struct, frozen=True):
    """Access that never changes: a server, fixed headers, one TLS context."""

    server: str
    authorization: Authorization = Authorization()
    server_name: str | None = None
    proxy: str | None = None
    address_guard: AddressGuard | None = None
    proxy_authority: bytes | None = None

    async def authorize(self) -> Authorization:
        return self.authorization

    async def rejected(self, used: Authorization) -> bool:
        return False


class RotatingAccess:
    """Access whose tokens, certificates and authorities may rotate; new ones take effect as they appear."""

    def __init__(
        self,
        server: str,
        credentials: CredentialSource,
        *,
        authority: bytes | RereadFile | None = None,
        insecure: bool = False,
        server_name: str | None = None,
        proxy: str | None = None,
        proxy_authority: RereadFile | None = None,
        impersonate: Headers = (),
        address_guard: AddressGuard | None = None,
        origin: str = "",
    ) -> None:
        if insecure and authority is not None:
            raise ConfigError(
                "insecure-skip-tls-verify and a certificate authority exclude each other; remove one of them"
            )
        self.server = server.rstrip("/")
        self.server_name = server_name
        self.proxy = proxy
        self.address_guard = address_guard
        self._credentials = credentials
        self._authority = authority
        self._proxy_authority = proxy_authority
        self._insecure = insecure
        self._impersonate = impersonate
        self._origin = origin
        """The kubeconfig and the context, for errors."""
        self._latest: tuple[Credential, bytes | None, Authorization] | None = None

    @property
    def proxy_authority(self) -> bytes | None:
        """The declared CA of the proxy, or else that of the cluster, which kubectl verifies proxies against."""
        return content_of(self._proxy_authority or self._authority)

    def check(self) -> None:
        """Raise `ConfigError` now if the authority, or the client certificate and its key, cannot be used."""
        declared = self._credentials if isinstance(self._credentials, DeclaredCredentials) else None
        certificate, key = declared.pair() if declared is not None else (None, None)
        if self._authority is not None or certificate is not None:
            self._tls(Credential((), certificate, key), content_of(self._authority))

    async def authorize(self) -> Authorization:
        credential = await self._credentials.current()
        authority = content_of(self._authority)
        if self._latest is not None and self._latest[0] is credential and self._latest[1] is authority:
            return self._latest[2]
        authorization = Authorization(
            (*credential.headers, *self._impersonate), self._tls(credential, authority)
        )
        self._latest = (credential, authority, authorization)
        return authorization

    async def rejected(self, used: Authorization) -> bool:
        if self._latest is None or self._latest[2] is not used:
            return True  # another request has renewed it in the meantime
        return await self._credentials.rejected(self._latest[0])

    def _tls(self, credential: Credential, authority: bytes | None) -> ssl.SSLContext | bool:
        if self.server.startswith("http://"):
            return True  # without TLS, a trust store is not needed
        if self._latest is not None:
            before, trusted, authorization = self._latest
            unchanged = (before.certificate, before.key, trusted) == (
                credential.certificate,
                credential.key,
                authority,
            )
            if unchanged and isinstance(authorization.tls, ssl.SSLContext):
                return authorization.tls  # only a header changed, so the connections stay
        try:
            return client_context(
                ca=authority, certificate=credential.certificate, key=credential.key, insecure=self._insecure
            )
        except ConfigError as error:
            raise ConfigError(f"{self._origin}: {error}" if self._origin else str(error)) from error
