"""An http or https URL, taken apart once."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from kapsa.runtime.errors import ConfigError

__all__ = ["HttpUrl"]

_PORTS = {"http": 80, "https": 443}


class HttpUrl(NamedTuple):
    """The URL of a server or a proxy."""

    scheme: str
    host: str
    port: int
    path: str = ""
    login: str = ""
    """`user:password`, if the URL has them."""

    @classmethod
    def parse(cls, url: str) -> HttpUrl:
        """Take a URL apart. The message of a `ConfigError` leaves out the login that the URL may hold."""
        shown = url.rpartition("@")[2]
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
            if parts.scheme not in _PORTS or not host:
                raise ConfigError(f"{shown!r} is not an http(s) URL")
            host = host.encode("idna").decode("ascii")
        except ValueError as error:
            raise ConfigError(f"{shown!r} is not a URL: {error}") from error
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else ""
        return cls(parts.scheme, host, port or _PORTS[parts.scheme], parts.path.rstrip("/"), login)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def authority(self) -> str:
        """The value of a request's Host header: without the port if it is the scheme's default."""
        return str(self).removesuffix(f":{_PORTS[self.scheme]}")

    @property
    def secure(self) -> bool:
        return self.scheme == "https"
