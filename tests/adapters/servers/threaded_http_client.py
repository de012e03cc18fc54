"""HTTP requests over real sockets from a thread, so that virtual time stands still meanwhile."""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import Mapping
from urllib.parse import urlsplit

from kapsa.adapters.errors import Unreachable
from kapsa.adapters.http.client import HttpResponse

__all__ = ["ThreadedHttpClient"]

_NO_HEADERS: Mapping[str, str] = {}


class ThreadedHttpClient:
    """A replacement for `GuardedHttpClient` in tests on virtual time, for servers on loopback."""

    async def fetch(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] = _NO_HEADERS,
        body: bytes = b"",
        verify: bool = True,
        limit: int = 4 * 1024 * 1024,
    ) -> HttpResponse:
        return await asyncio.to_thread(_fetch, method, url, headers, body, limit)


def _fetch(method: str, url: str, headers: Mapping[str, str], body: bytes, limit: int) -> HttpResponse:
    parts = urlsplit(url)
    if parts.scheme != "http":
        raise Unreachable(f"{method} {url}: test servers support plain http only")
    connection = http.client.HTTPConnection(parts.netloc, timeout=20)
    try:
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        connection.request(method, target, body=body or None, headers=dict(headers))
        response = connection.getresponse()
        return HttpResponse(response.status, dict(response.getheaders()), response.read(limit))
    except OSError as error:
        raise Unreachable(f"{method} {url}: {error}") from error
    finally:
        connection.close()
