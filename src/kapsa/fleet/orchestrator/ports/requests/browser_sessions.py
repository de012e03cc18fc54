"""Sessions of browsers, shared by all replicas."""

from datetime import datetime
from typing import Protocol

import msgspec

from kapsa.fleet.domain.principals import Principal

__all__ = ["BrowserSession", "BrowserSessions"]


class BrowserSession(msgspec.Struct, frozen=True):
    """A session of a signed-in browser."""

    principal: Principal
    expires_at: datetime


class BrowserSessions(Protocol):
    """The sessions. A session is identified by the hash of its secret token."""

    async def create(self, token_hash: bytes, session: BrowserSession) -> None:
        """Store a session, and delete those that have expired."""
        ...

    async def get(self, token_hash: bytes) -> BrowserSession | None:
        """Return a session that has not expired."""
        ...

    async def delete(self, token_hash: bytes) -> None:
        """End a session."""
        ...
