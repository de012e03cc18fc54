"""Calls of the managers' API by many people, each with a token of their own, and the seconds that each call takes."""

from __future__ import annotations

import contextlib
import itertools
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from kapsa.fleet.domain.principals import Principal, Role
from kapsa.fleet.infrastructure.local_keys import LocalKeys

_AUDIENCE = "kapsa-fleet"
_TOKEN_HOURS = 12
_TIMEOUT = aiohttp.ClientTimeout(total=300)


class CallFailed(RuntimeError):  # noqa: N818 - named as what happened
    """A manager refused a call, or did not answer."""


class FleetCalls:
    """The API of one or several managers. Each person always calls the same one, as behind a load balancer."""

    def __init__(self, session: aiohttp.ClientSession, urls: Sequence[str], keys: LocalKeys) -> None:
        self._session = session
        self._urls = itertools.cycle(urls)
        self._keys = keys
        self._people: dict[str, tuple[str, str]] = {}

    @classmethod
    @contextlib.asynccontextmanager
    async def connected(cls, urls: Sequence[str], data_directory: Path) -> AsyncIterator[FleetCalls]:
        """Open connections for as many people as there are. The managers use this data directory."""
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=_TIMEOUT) as session:
            yield cls(session, urls, LocalKeys(data_directory))

    async def get(self, person: str, path: str) -> Any:
        """Return what a path has."""
        return (await self.timed("GET", person, path))[0]

    async def post(self, person: str, path: str, body: Any) -> Any:
        """Post a body, and return the answer."""
        return (await self.timed("POST", person, path, body))[0]

    async def timed(self, method: str, person: str, path: str, body: Any = None) -> tuple[Any, float]:
        """Return the answer to a call, and the seconds until it was complete. Raises CallFailed if it is refused."""
        content = await self._send(method, person, f"/api/v1{path}", body)
        return msgspec.json.decode(content[0]), content[1]

    async def metrics(self, url: str, person: str) -> str:
        """Return the metrics of one manager."""
        headers = {"Authorization": f"Bearer {self._person(person)[1]}"}
        async with self._session.get(f"{url}/metrics", headers=headers) as response:
            response.raise_for_status()
            return await response.text()

    async def _send(self, method: str, person: str, path: str, body: Any) -> tuple[bytes, float]:
        url, token = self._person(person)
        headers = {"Authorization": f"Bearer {token}"}
        if method == "POST":
            headers |= {"Idempotency-Key": str(uuid.uuid4()), "Content-Type": "application/json"}
        data = None if body is None else msgspec.json.encode(body)
        started = time.perf_counter()
        try:
            async with self._session.request(method, url + path, data=data, headers=headers) as response:
                content = await response.read()
                seconds = time.perf_counter() - started
        except (aiohttp.ClientError, TimeoutError) as error:
            raise CallFailed(f"{method} {path} got no answer: {str(error) or type(error).__name__}") from None
        if response.status >= 300:
            text = content[:500].decode(errors="replace")
            raise CallFailed(f"{method} {path} was refused with {response.status}: {text}")
        return content, seconds

    def _person(self, name: str) -> tuple[str, str]:
        """Return the manager and the token of a person."""
        if name not in self._people:
            admin = Principal(name, frozenset({Role.ADMIN}))
            lifetime = timedelta(hours=_TOKEN_HOURS)
            token = self._keys.mint_token(admin, _AUDIENCE, lifetime, datetime.now(UTC))
            self._people[name] = (next(self._urls), token)
        return self._people[name]
