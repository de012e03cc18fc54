"""A client for servers that are not trusted: addresses are checked, and responses are limited.

Callers take the `HttpClient` protocol, so that a test can respond without sockets. `GuardedHttpClient` is the
real one. Redirects are not followed: the caller decides where they may lead, and with which headers.

Behind a proxy of the environment (see `environment_proxy`) it is the proxy that resolves names, so that it has to refuse
internal addresses: the guard sees the address of the proxy only, and addresses that are in URLs.
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import aiohttp
import msgspec
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from kapsa.adapters.errors import LimitExceeded, Refused, TimedOut, Unreachable
from kapsa.adapters.http._guarded_resolver import GuardedResolver
from kapsa.adapters.http.address_guard import AddressGuard, is_ip, reject_internal_address
from kapsa.adapters.http.environment_proxy import environment_proxy
from kapsa.adapters.redaction import redact

__all__ = ["GuardedHttpClient", "HttpClient", "HttpResponse"]


_MIB = 1024 * 1024
_NO_HEADERS: Mapping[str, str] = {}


class HttpResponse(msgspec.Struct, frozen=True):
    """The response of a server."""

    status: int
    headers: Mapping[str, str]
    """Headers as the server sent them. Use `header` for a lookup that ignores case."""
    body: bytes = b""

    def header(self, name: str) -> str:
        """Return a header by its name in any case, or an empty string."""
        lowered = name.lower()
        return next((value for key, value in self.headers.items() if key.lower() == lowered), "")


class HttpClient(Protocol):
    """A client that sends one request and reads the complete response."""

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
        """Return the response, whatever its status. With `verify`, the server needs a trusted certificate.

        A `Host` header is also used as the server name in TLS. With a limit of 0 the body is not read.

        Raises `ExternalError` when there is no response, or when it is not accepted.
        """
        ...


class GuardedHttpClient:
    """A client on aiohttp with a small pool of connections, which checks each address."""

    def __init__(
        self,
        *,
        address_guard: AddressGuard | None = reject_internal_address,
        timeout: float = 15.0,
        connections: int = 32,
        user_agent: str = "kapsa",
        ca_file: Path | None = None,
    ) -> None:
        self._guard = address_guard
        self._timeout = aiohttp.ClientTimeout(total=timeout, sock_connect=min(timeout, 10.0))
        self._connections = connections
        self._user_agent = user_agent
        self._trusted = True if ca_file is None else ssl.create_default_context(cafile=ca_file)
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
        request = f"{method} {target.with_query(None)}"
        self._check_literal(target)
        if self._session is None:
            self._session = self._make_session()
        try:
            async with self._session.request(
                method,
                target,
                headers=headers,
                data=body or None,
                ssl=self._trusted if verify else _unverified(),
                server_hostname=headers.get("Host", "").partition(":")[0] or None,
                allow_redirects=False,
                proxy=environment_proxy(target),
            ) as response:
                content = await _read(response, request, limit) if limit else b""
                return HttpResponse(response.status, _plain(response.headers), content)
        except TimeoutError as error:
            raise TimedOut(f"{request}: no response in time") from error
        except (aiohttp.ClientError, OSError, ssl.SSLError) as error:
            if isinstance(refused := _cause(error), Refused):
                raise refused from error
            certificate = isinstance(error, aiohttp.ClientSSLError)
            raise Unreachable(
                f"{request}: {_message(error)}",
                hint="The server's certificate is signed by an unknown authority" if certificate else "",
            ) from error
        except ValueError as error:
            raise Refused(f"{request}: {_message(error)}") from error

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _check_literal(self, url: URL) -> None:
        # An IP address in the URL is never resolved, so the resolver does not check it.
        if url.scheme not in ("http", "https") or not url.host:
            raise Refused(f"protocol {url.scheme!r} is not allowed; use http or https")
        if self._guard is not None and is_ip(url.host):
            self._guard(url.host)

    def _make_session(self) -> aiohttp.ClientSession:
        resolver = GuardedResolver(self._guard) if self._guard is not None else None
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._connections, ttl_dns_cache=30, resolver=resolver),
            timeout=self._timeout,
            headers={"User-Agent": self._user_agent, "Accept-Encoding": "identity"},
            cookie_jar=aiohttp.DummyCookieJar(),
            # Not trust_env, which sends a password of .netrc to any server, and refuses one along with a token.
            trust_env=False,
            auto_decompress=False,
        )


async def _read(response: aiohttp.ClientResponse, request: str, limit: int) -> bytes:
    content = bytearray()
    async for chunk in response.content.iter_any():
        content += chunk
        if len(content) > limit:
            raise LimitExceeded(f"{request}: the response is larger than {limit} bytes")
    return bytes(content)


@functools.cache
def _unverified() -> ssl.SSLContext:
    # Not the default context, which loads all authorities of this machine for nothing.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _plain(headers: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    return CIMultiDict(headers)


def _cause(error: BaseException) -> BaseException | None:
    """Return the innermost cause. aiohttp wraps the errors of a resolver."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _message(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientHttpProxyError):  # its text has the password of the proxy
        return f"the proxy answered {error.status} {error.message}"
    return redact(str(error)) or type(error).__name__
