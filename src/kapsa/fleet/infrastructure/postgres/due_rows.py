"""Rows that are due at intervals: claimed in a short transaction, so that replicas share them and none is done twice."""

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import Column, Table, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from kapsa.fleet.infrastructure.postgres.tables.metadata import NOW

__all__ = ["DueRows"]


class DueRows(msgspec.Struct, frozen=True):
    """The columns of a table by which its rows are claimed."""

    table: Table
    key: str
    due_at: str
    fence: str
    """Counts the claims of a row: a late result of an earlier one is recognized by it."""

    async def claim(
        self,
        connection: AsyncConnection,
        *,
        interval: timedelta,
        limit: int,
        at_work: Sequence[uuid.UUID] = (),
    ) -> dict[uuid.UUID, int]:
        """Claim rows that are due, the longest overdue first. Return the fence of each by its key.

        Rows at work are left out: a claim of our own would fence out their result.

        A claim makes the row due again one interval later: if the replica dies, another one makes up for it then.
        """
        key, due_at, fence = self._column(self.key), self._column(self.due_at), self._column(self.fence)
        due = (
            select(key)
            .where(due_at <= NOW, key.not_in(at_work))
            .order_by(due_at)
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        keys = list((await connection.execute(due)).scalars())
        if not keys:
            return {}
        changes = {self.due_at: NOW + interval, self.fence: fence + 1}
        claim = update(self.table).where(key.in_(keys)).values(changes).returning(key, fence)
        fences = {row[0]: row[1] for row in await connection.execute(claim)}
        return {each: fences[each] for each in keys}

    async def next_due(self, connection: AsyncConnection) -> datetime | None:
        """Return the time at which the next row is due, None if there is no row."""
        query = select(func.min(self._column(self.due_at)))
        moment: datetime | None = (await connection.execute(query)).scalar()
        return moment

    def _column(self, name: str) -> Column[Any]:
        return self.table.c[name]
