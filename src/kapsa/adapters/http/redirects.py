"""Redirects of servers that are not trusted: few, never away from TLS, and credentials stay at their own origin."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urljoin, urlsplit

from kapsa.adapters.errors import ExternalFailure, Refused
from kapsa.adapters.http.client import HttpClient, HttpResponse

__all__ = ["fetch_redirected", "origin_of"]

_MOST_REDIRECTS = 3
_NO_HEADERS: Mapping[str, str] = {}


async def fetch_redirected(
    http: HttpClient,
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] = _NO_HEADERS,
    authorization: str = "",
    plain: bool = False,
    verify: bool = True,
    limit: int = 4 * 1024 * 1024,
) -> HttpResponse:
    """Send one request and follow its redirects. `authorization` is sent to the origin of `url` only.

    Raises `Refused` for a redirect without https, unless `plain` allows it, and the errors of `HttpClient`.
    """
    first = origin_of(url)
    server = f"{first[0]}://{first[1]}"
    for _ in range(_MOST_REDIRECTS + 1):
        sent = dict(headers)
        if authorization and origin_of(url) == first:
            sent["Authorization"] = authorization
        response = await http.fetch(method, url, headers=sent, verify=verify, limit=limit)
        if response.status not in (301, 302, 303, 307, 308):
            return response
        url = _redirected(server, url, response.header("Location"), plain=plain)
    raise ExternalFailure(f"{server}: more than {_MOST_REDIRECTS} redirects in a row")


def origin_of(url: str) -> tuple[str, str]:
    """Return the scheme and the host with its port: what credentials are bound to."""
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.lower()


def _redirected(server: str, url: str, location: str, *, plain: bool) -> str:
    target = urljoin(url, location)
    if not location or urlsplit(target).scheme not in (("https", "http") if plain else ("https",)):
        raise Refused(f"{server} redirects to an address without https")
    return target
