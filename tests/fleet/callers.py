"""Callers of a running manager: people with a token, over its socket."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from kapsa.fleet.domain.principals import Principal, Role
from kapsa.fleet.infrastructure.local_keys import LocalKeys
from kapsa.fleet.server.lifecycle import FleetServer

_REPETITIONS, _WAIT = 30, 5.0
"""More than a minute, for which the manager counts requests."""


class Caller:
    """A person with a token, who calls the manager over its socket."""

    def __init__(self, server: FleetServer, directory: Path, subject: str, *roles: Role) -> None:
        principal = Principal(subject, frozenset(roles))
        token = LocalKeys(directory).mint_token(
            principal, "kapsa-fleet", timedelta(hours=1), datetime.now(UTC)
        )
        headers = {"Authorization": f"Bearer {token}"}
        self.http = httpx.AsyncClient(base_url=f"{server.http.url}/api/v1", headers=headers, timeout=60)

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Call the manager. Return the status and the decoded body."""
        response = await self.http.request(method, path, json=body)
        return response.status_code, response.json() if response.content else None

    async def get(self, path: str) -> Any:
        """Return what a path has, which must exist."""
        return await self._succeed("GET", path)

    async def post(self, path: str, body: Any = None) -> Any:
        """Post a body, which must be accepted."""
        return await self._succeed("POST", path, body)

    async def _succeed(self, method: str, path: str, body: Any = None) -> Any:
        for _ in range(_REPETITIONS):
            status, answer = await self.call(method, path, body)
            if status != httpx.codes.TOO_MANY_REQUESTS:
                break
            await asyncio.sleep(_WAIT)  # a sweep makes more requests in a minute than a person may
        assert status < 300, f"{method} {path}: {status} {answer}"
        return answer
