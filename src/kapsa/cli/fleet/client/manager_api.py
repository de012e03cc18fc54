"""Calls of a manager's HTTP API, as a person with a token makes them."""

from __future__ import annotations

import asyncio
import ssl
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from kapsa import __version__
from kapsa.adapters.errors import Refused
from kapsa.adapters.http.environment_proxy import environment_proxy
from kapsa.cli.fleet.client.problems import ManagerUnavailable, refusal
from kapsa.cli.tables import printable

__all__ = ["LARGEST_PAGE", "ManagerApi", "as_type", "path_of"]

Answer = TypeVar("Answer")

LARGEST_PAGE = 200
_TIMEOUT = aiohttp.ClientTimeout(total=300, sock_connect=15)
_ATTEMPTS = 4
_PAUSE = 0.5
_LARGEST_ANSWER = 64 << 20
_UNDER_WAY = "is being handled"


def path_of(*parts: object) -> str:
    """Return the path of an object; what a person typed cannot leave its part."""
    return "".join(f"/{quote(str(part), safe='')}" for part in parts)


def as_type(answer: Any, kind: type[Answer]) -> Answer:
    """Return an answer as the type that the API declares. Raises ManagerUnavailable if it is another one."""
    try:
        return msgspec.convert(answer, kind)
    except msgspec.ValidationError as error:
        raise ManagerUnavailable(
            f"the manager's answer is not what kapsa {__version__} expects ({printable(error)}): "
            "use the version of the manager, or -o json"
        ) from None


class _Page(msgspec.Struct, frozen=True, rename="camel"):
    """A page of a list, as each list of the API has it."""

    items: list[dict[str, Any]]
    next_cursor: str | None = None


class ManagerApi:
    """The API of a manager, for one person."""

    def __init__(self, url: str, token: str, *, authority: str = "") -> None:
        self.url = url
        self._base = f"{url}/api/v1"
        self._skew = timedelta()
        context = ssl.create_default_context(cadata=authority) if authority else True
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {token}", "User-Agent": f"kapsa/{__version__}"},
            timeout=_TIMEOUT,
            connector=aiohttp.TCPConnector(ssl=context),
            # Not trust_env, which reads a password of .netrc, too, and refuses to send it along with a token.
            proxy=_proxy(url),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    @property
    def now(self) -> datetime:
        """The time by the manager's clock, which deadlines are counted by."""
        return datetime.now(UTC) + self._skew

    async def get(self, path: str, **query: object) -> Any:
        """Return what a path has. Empty parameters are left out."""
        return await self._call("GET", path, query=query)

    async def post(self, path: str, body: Any = None, *, key: str = "") -> Any:
        """Post a body, with an idempotency key: it takes effect once, also if the connection breaks. Return the answer."""
        headers = {"Idempotency-Key": key or str(uuid.uuid4())}
        return await self._call("POST", path, body, headers=headers)

    async def patch(self, path: str, body: Any, *, version: int | None = None) -> Any:
        """Change an object, only if it has this version. Return the answer."""
        return await self._call("PATCH", path, body, headers=_if_match(version))

    async def delete(self, path: str, *, version: int | None = None) -> Any:
        """Delete an object, only if it has this version. Return the answer."""
        return await self._call("DELETE", path, headers=_if_match(version))

    async def items(self, path: str, *, limit: int = 0, **query: object) -> AsyncIterator[Any]:
        """Yield the items of a list, page by page, at most `limit` of them; all with 0."""
        cursor, count = "", 0
        seen: set[str] = set()
        while True:
            size = min(LARGEST_PAGE, limit - count) if limit else LARGEST_PAGE
            page = as_type(await self.get(path, **query, limit=size, cursor=cursor), _Page)
            for item in page.items[: limit - count] if limit else page.items:
                yield item
            count += len(page.items)
            if not page.next_cursor or (limit and count >= limit):
                return
            seen.add(cursor)
            if page.next_cursor in seen or not page.items:
                raise ManagerUnavailable(f"{self.url} lists {path} without end: it repeats a page")
            cursor = page.next_cursor

    async def _call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, object] | None = None,
    ) -> Any:
        """Send a request, again if the connection breaks and it cannot take effect twice. Return the decoded answer."""
        url = URL(self._base + path, encoded=True).with_query(_texts(query or {}))
        content = None if body is None else msgspec.json.encode(body)
        sent = {**(headers or {}), **({} if content is None else {"Content-Type": "application/json"})}
        repeatable = method == "GET" or "Idempotency-Key" in sent
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                status, answer, retry_after = await self._send(method, url, content, sent)
            except (aiohttp.ClientError, TimeoutError) as error:
                failure = self._unreachable(error)
                if not repeatable or isinstance(error, (aiohttp.ClientConnectorError, TimeoutError)):
                    raise failure from None
            else:
                if attempt == 1 or status != 409 or _UNDER_WAY not in str(answer):
                    return self._accepted(f"{method} {path}", status, answer, retry_after)
                failure = ManagerUnavailable(
                    f"{method} {path} {_UNDER_WAY} by the manager: look at its result later"
                )
            if attempt < _ATTEMPTS:
                await asyncio.sleep(_PAUSE * 2 ** (attempt - 1))
        raise failure

    async def _send(
        self, method: str, url: URL, content: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, Any, str]:
        async with self._session.request(
            method, url, data=content, headers=headers, allow_redirects=False
        ) as response:
            self._set_clock(response.headers.get("Date", ""))
            text = await self._read(response)
            retry_after = response.headers.get("Retry-After", "")
            return response.status, self._decoded(response, text), retry_after

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        content = bytearray()
        async for chunk in response.content.iter_any():
            content += chunk
            if len(content) > _LARGEST_ANSWER:
                raise ManagerUnavailable(
                    f"the answer of {self.url} is larger than {_LARGEST_ANSWER >> 20} MB: check the address"
                )
        return bytes(content)

    def _decoded(self, response: aiohttp.ClientResponse, text: bytes) -> Any:
        if not text and response.status < 300:
            return None
        if "json" in response.content_type:
            with suppress(msgspec.DecodeError):
                return msgspec.json.decode(text)
        raise ManagerUnavailable(
            f"{self.url} does not answer as a fleet manager does ({response.status} "
            f"{printable(response.content_type)}): check the address, and `kapsa fleet login` with the right one"
        )

    def _accepted(self, call: str, status: int, answer: Any, retry_after: str) -> Any:
        if status >= 300:
            raise refusal(call, status, answer, retry_after)
        return answer

    def _set_clock(self, date: str) -> None:
        try:
            self._skew = parsedate_to_datetime(date) - datetime.now(UTC)
        except (ValueError, TypeError):
            return

    def _unreachable(self, error: Exception) -> ManagerUnavailable:
        match error:
            case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
                why = f"its certificate is not trusted: {printable(error)[:300]}"
                advice = "give its authority with `kapsa fleet login URL --ca FILE`"
            case TimeoutError():
                why = "it did not answer in time"
                advice = "look whether the request took effect before you repeat it"
            case aiohttp.ClientConnectorError():
                why = printable(error.os_error.strerror or error.os_error)
                advice = "check the address, and that the manager runs (`kapsa fleet serve`)"
            case aiohttp.ClientHttpProxyError():  # its text has the password of the proxy
                why = f"the proxy answered {error.status} {printable(error.message)[:300]}"
                advice = "check HTTPS_PROXY, or add the manager to NO_PROXY"
            case _:
                why = f"the connection broke: {printable(error)[:300]}"
                advice = "run the command again"
        return ManagerUnavailable(f"no answer from the manager at {self.url}: {why}; {advice}")


def _proxy(url: str) -> URL | None:
    try:
        return environment_proxy(URL(url))
    except Refused as error:
        raise ManagerUnavailable(f"no answer from the manager at {url}: {printable(error)}") from None


def _if_match(version: int | None) -> dict[str, str]:
    return {} if version is None else {"If-Match": f'"{version}"'}


def _texts(query: Mapping[str, object]) -> dict[str, str]:
    given = {
        name: value
        for name, value in query.items()
        if value is not None and value is not False and value != ""
    }
    return {name: "true" if value is True else str(value) for name, value in given.items()}
