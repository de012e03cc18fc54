"""Calls of the manager's API, as a person with a token makes them."""

from __future__ import annotations

from typing import Any

import aiohttp

__all__ = ["CallRefused", "ManagerApi"]

_SECONDS = 60.0


class CallRefused(Exception):  # noqa: N818 - named as what happened
    """The manager answered with a problem."""

    for_the_user = True

    def __init__(self, call: str, status: int, detail: str) -> None:
        super().__init__(f"{call} was refused with {status}: {detail}")
        self.status = status
        self.detail = detail


class ManagerApi:
    """The API of a manager, for one person."""

    def __init__(self, url: str, token: str) -> None:
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {token}"}, timeout=aiohttp.ClientTimeout(_SECONDS)
        )
        self._base = f"{url}/api/v1"

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def get(self, path: str) -> Any:
        """Return what a path has."""
        return await self._call("GET", path)

    async def post(self, path: str, body: Any = None) -> Any:
        """Post a body. Return the answer."""
        return await self._call("POST", path, body)

    async def _call(self, method: str, path: str, body: Any = None) -> Any:
        async with self._session.request(method, self._base + path, json=body) as response:
            answer = await response.json(content_type=None)
            if response.status >= 300:
                detail = str((answer or {}).get("detail", response.reason))
                raise CallRefused(f"{method} {path}", response.status, detail)
            return answer
