"""A client of HTTP chart repositories: an index that lists all charts, and their archives.

Nothing that the repository says is trusted: addresses are judged at each connection, credentials go to the host of
the repository alone, sizes are limited, and an archive must have the digest that the index gives.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from typing import Any
from urllib.parse import urljoin, urlsplit

import msgspec

from kapsa.adapters.errors import (
    AuthFailed,
    ExternalError,
    ExternalFailure,
    ExternalNotFound,
    LimitExceeded,
    Refused,
    Unreachable,
)
from kapsa.adapters.helm._index_reader import read_index
from kapsa.adapters.http.client import HttpClient, HttpResponse
from kapsa.adapters.http.redirects import fetch_redirected, origin_of
from kapsa.adapters.redaction import printable, redact

__all__ = ["ChartEntry", "ChartRepository", "RepositoryCredentials"]

_INDEX_LIMIT = 20 * 1024 * 1024
_URL_LIMIT = 2048
_MOST_VERSIONS = 10_000
_DIGEST = re.compile(r"(?:sha256:)?([0-9a-fA-F]{64})")


class RepositoryCredentials(msgspec.Struct, frozen=True):
    """A user name and password, or a bearer token instead of them."""

    username: str = ""
    password: str = ""
    token: str = ""

    @property
    def header(self) -> str:
        """The value of the Authorization header."""
        if self.token:
            return f"Bearer {self.token}"
        return "Basic " + base64.b64encode(f"{self.username}:{self.password}".encode()).decode()

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that must never be shown."""
        return tuple(secret for secret in (self.password, self.token) if secret)

    def __repr__(self) -> str:
        return "RepositoryCredentials(...)"  # the values must not appear in logs


class ChartEntry(msgspec.Struct, frozen=True):
    """One version of a chart in an index."""

    version: str
    urls: tuple[str, ...]
    """Absolute addresses of the archive."""
    digest: str = ""
    """`sha256:…`; empty if the index gives none."""


class ChartRepository:
    """A client of one chart repository."""

    def __init__(
        self,
        url: str,
        http: HttpClient,
        *,
        credentials: RepositoryCredentials | None = None,
        allow_http: bool = False,
    ) -> None:
        self._base = _base(url, allow_http)
        self._http = http
        self._credentials = credentials
        self._allow_http = allow_http

    async def versions(self, chart: str) -> tuple[ChartEntry, ...]:
        """Return the versions of a chart, in the order of the index.

        Raises `ExternalNotFound` when the repository does not have the chart, `Refused` when it has no valid
        index, `AuthFailed` and `Unreachable`.
        """
        url = f"{self._base}index.yaml"
        response = await self._fetch(url, _INDEX_LIMIT)
        if response.status != 200:
            raise self._failure(response, url, "is not a chart repository: it has no index.yaml")
        entries = await asyncio.to_thread(self._read, response.body, chart)
        if not entries:
            raise ExternalNotFound(f"{self._base} has no chart {chart[:120]!r}", reason="NoChart")
        return tuple(self._entry(entry, chart) for entry in entries[:_MOST_VERSIONS])

    def _read(self, content: bytes, chart: str) -> list[Any] | None:
        try:
            return read_index(content, chart)
        except LimitExceeded as error:
            raise LimitExceeded(f"{self._base}index.yaml: {error}") from None
        except Refused as error:
            raise Refused(f"{self._base}index.yaml: {error}", reason=error.reason) from None

    async def download(self, entry: ChartEntry, *, limit: int) -> bytes:
        """Return the archive of one version, which has the digest of its entry.

        Raises `Refused` when it has another digest, `LimitExceeded` when it is too large, and the errors of a
        request.
        """
        problem: ExternalError = Refused(f"{self._base}: version {entry.version} has no address")
        for url in entry.urls:
            try:
                content = await self._archive(url, limit)
            except (ExternalNotFound, ExternalFailure, Unreachable) as error:
                problem = error
                continue
            digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
            if entry.digest and digest != entry.digest:
                raise Refused(
                    f"{url} has the digest {digest}, but the index has {entry.digest}",
                    hint="The archive was changed after it was published, or the index is out of date",
                    reason="DigestMismatch",
                )
            return content
        raise problem

    async def _archive(self, url: str, limit: int) -> bytes:
        if urlsplit(url).scheme == "oci":
            raise Refused(f"the index refers to {url}", hint="Use the chart from its OCI registry instead")
        response = await self._fetch(url, limit)
        if response.status != 200:
            raise self._failure(response, url, "does not exist")
        return response.body

    async def _fetch(self, url: str, limit: int) -> HttpResponse:
        if urlsplit(url).scheme not in (("https", "http") if self._allow_http else ("https",)):
            raise Refused(f"{url} is not an https address")
        # Another host gets no credentials, even if the index of this one refers to it.
        own = self._credentials is not None and origin_of(url) == origin_of(self._base)
        return await fetch_redirected(
            self._http,
            "GET",
            url,
            authorization=self._credentials.header if own and self._credentials is not None else "",
            plain=self._allow_http,
            limit=limit,
        )

    def _entry(self, entry: Any, chart: str) -> ChartEntry:
        where = f"{self._base}index.yaml: an entry of {chart}"
        if not isinstance(entry, dict) or not isinstance(version := entry.get("version"), str):
            raise Refused(f"{where} has no version", reason="NoIndex")
        urls = entry.get("urls")
        if not isinstance(urls, list) or not urls or not all(isinstance(url, str) for url in urls):
            raise Refused(f"{where}, version {version[:80]}, has no urls", reason="NoIndex")
        digest = entry.get("digest") or ""
        match = _DIGEST.fullmatch(digest) if isinstance(digest, str) else None
        if digest and match is None:
            raise Refused(
                f"{where}, version {version[:80]}, has a digest that is not SHA-256", reason="NoIndex"
            )
        addresses = tuple(self._address(url, where) for url in urls[:4])
        return ChartEntry(version, addresses, f"sha256:{match[1].lower()}" if match else "")

    def _address(self, url: str, where: str) -> str:
        try:
            target = urljoin(self._base, url)
            parts = urlsplit(target)
            valid = bool(parts.hostname) and parts.username is None and parts.password is None
        except ValueError:
            valid, target = False, ""
        if not valid or len(target) > _URL_LIMIT or not target.isprintable():
            raise Refused(
                f"{where} has an address that is not accepted: {redact(printable(url[:120]))!r}",
                reason="NoIndex",
            )
        return target

    def _failure(self, response: HttpResponse, url: str, missing: str) -> ExternalError:
        if response.status in (401, 403):
            problem = (
                "credentials were rejected" if self._credentials is not None else "credentials are required"
            )
            return AuthFailed(
                f"{url}: {problem} ({response.status})",
                hint="Check the user name and password of the repository",
            )
        if response.status in (404, 410):
            return ExternalNotFound(f"{url} {missing} ({response.status})")
        if response.status == 429 or response.status >= 500:
            return Unreachable(f"{url}: the server responded {response.status}")
        return ExternalFailure(f"{url}: unexpected status {response.status}")


def _base(url: str, allow_http: bool) -> str:
    """Return the address of a repository with a slash at its end."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise Refused(f"{redact(url[:120])!r} is not a URL: {error}") from None
    if parts.username is not None or parts.password is not None:
        raise Refused(
            "the address of a chart repository must not contain a user name or password",
            hint="Pass the credentials apart",
        )
    if (
        parts.scheme not in ("https", "http")
        or not host
        or port == 0
        or len(url) > _URL_LIMIT
        or not url.isprintable()
    ):
        raise Refused(f"{url[:120]!r} is not the https address of a chart repository")
    if parts.query or parts.fragment:
        raise Refused(f"{url[:120]!r} must not have a query or a fragment")
    if parts.scheme == "http" and not allow_http:
        raise Refused(f"{url[:120]} uses plain http, which anybody on the way can change", hint="Use https")
    return url.rstrip("/") + "/"
