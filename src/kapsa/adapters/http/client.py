"""Outgoing HTTP to servers that nobody vouches for: every address judged when connecting, every answer limited.

`HttpClient` is the protocol that the rest asks for, so that a test can answer without sockets; `GuardedHttpClient` is the real one.
It follows no redirect: where one may lead, and with which headers, is for the caller to decide.
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import Mapping
from typing import Protocol

import aiohttp
import msgspec
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from kapsa.adapters.errors import LimitExceeded, Refused, TimedOut, Unreachable
from kapsa.adapters.http._guarded_resolver import GuardedResolver
from kapsa.adapters.http.address_guard import AddressGuard, is_ip, no_inner_address

__all__ = ["GuardedHttpClient", "HttpClient", "HttpResponse"]


_MIB = 1024 * 1024
_NO_HEADERS: Mapping[str, str] = {}


class HttpResponse(msgspec.Struct, frozen=True):
    """What a server answered."""

    status: int
    headers: Mapping[str, str]
    """Their names in any case: look them up in any case, too, or use `header`."""
    body: bytes = b""

    def header(self, name: str) -> str:
        """One header, whatever the case of its name; empty if there is none."""
        wanted = name.lower()
        return next((value for key, value in self.headers.items() if key.lower() == wanted), "")


class HttpClient(Protocol):
    """Sends one request and reads the whole answer."""

    async def fetch(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] = _NO_HEADERS,
        body: bytes = b"",
        verify: bool = True,
        limit: int = 4 * _MIB,
    ) -> HttpResponse:
        """The answer, whatever its status. `verify` asks for a certificate that somebody vouches for.

        A `Host` among the headers is the name that TLS asks for, too.

        :raises ExternalError: there was none, or none that may be read.
        """
        ...


class GuardedHttpClient:
    """HTTP over aiohttp, with a small pool of connections."""

    def __init__(
        self,
        *,
        address_guard: AddressGuard | None = no_inner_address,
        timeout: float = 15.0,
        connections: int = 32,
        user_agent: str = "kapsa",
    ) -> None:
        self._guard = address_guard
        self._timeout = aiohttp.ClientTimeout(total=timeout, sock_connect=min(timeout, 10.0))
        self._connections = connections
        self._user_agent = user_agent
        self._session: aiohttp.ClientSession | None = None

    async def fetch(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] = _NO_HEADERS,
        body: bytes = b"",
        verify: bool = True,
        limit: int = 4 * _MIB,
    ) -> HttpResponse:
        target = URL(url)
        where = f"{method} {target.with_query(None)}"
        self._check_literal(target)
        if self._session is None:
            self._session = self._make_session()
        try:
            async with self._session.request(
                method,
                target,
                headers=headers,
                data=body or None,
                ssl=True if verify else _unverified(),
                server_hostname=headers.get("Host", "").partition(":")[0] or None,
                allow_redirects=False,
            ) as response:
                return HttpResponse(
                    response.status, _plain(response.headers), await _read(response, where, limit)
                )
        except TimeoutError as error:
            raise TimedOut(f"{where}: no answer in time") from error
        except (aiohttp.ClientError, OSError, ssl.SSLError) as error:
            if isinstance(refused := _cause(error), Refused):
                raise refused from error
            certificate = isinstance(error, aiohttp.ClientSSLError)
            raise Unreachable(
                f"{where}: {_told(error)}",
                hint="Its certificate is signed by an authority that the operator does not know"
                if certificate
                else "",
            ) from error
        except ValueError as error:
            raise Refused(f"{where}: {_told(error)}") from error

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _check_literal(self, url: URL) -> None:
        # An address in the URL itself never gets to the resolver.
        if url.scheme not in ("http", "https") or not url.host:
            raise Refused(f"{url.scheme!r} is not http or https")
        if self._guard is not None and is_ip(url.host):
            self._guard(url.host)

    def _make_session(self) -> aiohttp.ClientSession:
        resolver = GuardedResolver(self._guard) if self._guard is not None else None
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._connections, ttl_dns_cache=30, resolver=resolver),
            timeout=self._timeout,
            headers={"User-Agent": self._user_agent, "Accept-Encoding": "identity"},
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=True,
            auto_decompress=False,
        )


async def _read(response: aiohttp.ClientResponse, where: str, limit: int) -> bytes:
    content = bytearray()
    async for chunk in response.content.iter_any():
        content += chunk
        if len(content) > limit:
            raise LimitExceeded(f"{where}: the answer is larger than {limit} bytes")
    return bytes(content)


@functools.cache
def _unverified() -> ssl.SSLContext:
    # Not the default context: that reads all the authorities of this machine, which nobody asks here.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _plain(headers: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    return CIMultiDict(headers)


def _cause(error: BaseException) -> BaseException | None:
    """What is at the bottom: aiohttp wraps what a resolver raises."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _told(error: BaseException) -> str:
    return str(error) or type(error).__name__
