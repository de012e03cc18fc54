"""The audit log as admins read it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

import msgspec

from kapsa.fleet.domain.errors import InvalidField, InvalidInput, NotAllowed
from kapsa.fleet.domain.principals import Principal, Role
from kapsa.fleet.orchestrator.pages import Page

__all__ = ["AuditFilter", "AuditLog", "AuditReader", "AuditRecord"]

LARGEST_PAGE = 500


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One entry of the audit log."""

    id: int
    recorded_at: datetime
    action: str
    object_kind: str
    object_id: str
    actor: str | None
    """The subject that acted; null after erasure."""
    payload: Mapping[str, Any] | None
    """Details; null after erasure."""
    link: int | None
    """The position in the chain; null until it is sealed, about a second later."""


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Criteria that an entry must match. An empty one matches all."""

    actor: str = ""
    action: str = ""
    object_kind: str = ""
    object_id: str = ""
    since: datetime | None = None
    until: datetime | None = None


class AuditReader(Protocol):
    """The stored entries."""

    async def before(self, entry_id: int | None, criteria: AuditFilter, count: int) -> list[AuditRecord]:
        """Return up to `count` entries that match, older than this one, newest first."""
        ...


_ANYTHING = AuditFilter()


class AuditLog:
    """The use case behind `GET /audit`."""

    def __init__(self, reader: AuditReader) -> None:
        self._reader = reader

    async def page(
        self, principal: Principal, criteria: AuditFilter = _ANYTHING, *, cursor: str = "", limit: int = 100
    ) -> Page[AuditRecord]:
        """Return a page of entries, newest first. Only an admin may read them: they name people."""
        if not principal.has(Role.ADMIN):
            raise NotAllowed("only an admin may read the audit log")
        if not 1 <= limit <= LARGEST_PAGE:
            message = f"must be between 1 and {LARGEST_PAGE}, got {limit}"
            raise InvalidInput(message, InvalidField("/limit", message))
        records = await self._reader.before(_position(cursor), criteria, limit + 1)
        more = str(records[limit - 1].id) if len(records) > limit else ""
        return Page(tuple(records[:limit]), more)


def _position(cursor: str) -> int | None:
    if not cursor:
        return None
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= 18):
        message = "is not a cursor of this list: use nextCursor of the page before, or leave it out"
        raise InvalidInput(f"cursor {message}", InvalidField("/cursor", message))
    return int(cursor)
