"""Who we are to a cluster, and whom we trust: what a transport asks before each request."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

__all__ = ["Access", "Authorization", "StaticAccess"]


@dataclass(frozen=True, slots=True)
class Authorization:
    """What one request carries: headers that say who asks, and the TLS context it travels in.

    The context is the same object for as long as nothing changed, so that connections are shared.
    """

    headers: Mapping[str, str] = field(default_factory=dict)
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
    authorization: Authorization = field(default_factory=Authorization)
    server_name: str | None = None
    proxy: str | None = None

    async def authorize(self) -> Authorization:
        return self.authorization

    async def rejected(self, used: Authorization) -> bool:
        return False
