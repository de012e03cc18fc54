"""The outbox table: messages are put in by transactions, and claimed for delivery by one replica at a time.

A claim makes the message due again a little later. A replica that dies with a claim delays the message by that
time, and loses nothing. Messages are claimed lane by lane, a lane being the mail server or one webhook: a destination
that is down delays its own messages only.
"""

import hashlib
import re
import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.tables.foundation import outbox
from kapsa.fleet.infrastructure.postgres.tables.metadata import NOW
from kapsa.fleet.orchestrator.ports.outbox import MailMessage, WebhookEvent

__all__ = ["ClaimedMessage", "OutboxLane", "OutboxQueue", "PostgresOutbox", "endpoint_id"]

_CLAIM = timedelta(seconds=20)
_FIRST_DELAY = 5.0
_LONGEST_DELAY = 600.0
_GIVE_UP_AFTER = timedelta(days=1)
_FEWEST_ATTEMPTS = 20
"""A manager that was away for a day has not tried for a day."""
_ADDRESS = re.compile(r"[^\s@<>,;\"]+@[^\s@<>,;\"]+")
_LONGEST_ERROR = 500


class ClaimedMessage(msgspec.Struct, frozen=True):
    """A message that this replica may send now."""

    id: uuid.UUID
    kind: str
    """`mail` or `webhook`."""
    payload: dict[str, Any]
    attempt: int
    created_at: datetime
    """The time at which it was written: that of what it is about."""
    claimed_at: datetime
    """The time of this attempt by the clock of the database, which all replicas share."""


class OutboxLane(msgspec.Struct, frozen=True):
    """The messages of one destination; without a name, those of every destination that has no lane of its own."""

    name: str = ""
    """`mail` or `webhook:ENDPOINT`."""
    others: tuple[str, ...] = ()
    """The lanes that have a name, for the lane that has none."""

    def condition(self) -> ColumnElement[bool]:
        """Return the condition on the rows of this lane."""
        lane = func.concat_ws(":", outbox.c.kind, outbox.c.payload["endpoint"].astext)
        return lane == self.name if self.name else lane.not_in(self.others)


_EVERY_LANE = OutboxLane()


class PostgresOutbox:
    """The outbox as use cases see it."""

    def __init__(self, webhook_urls: Sequence[str] = (), *, mail: bool = True) -> None:
        self._endpoints = [endpoint_id(url) for url in dict.fromkeys(webhook_urls)]
        self._mail = mail

    async def put(self, connection: AsyncConnection, message: MailMessage | WebhookEvent) -> None:
        """Add a message in the caller's transaction: a row for each recipient, so that each is retried alone."""
        if isinstance(message, MailMessage):
            rows = self._mails(message)
        else:
            event = {"type": message.type, "data": message.data}
            rows = [{"kind": "webhook", "payload": {**event, "endpoint": each}} for each in self._endpoints]
        if rows:
            await connection.execute(insert(outbox), rows)

    def _mails(self, message: MailMessage) -> list[dict[str, Any]]:
        if not self._mail:
            return []
        subject = " ".join(message.subject.split())
        return [
            {"kind": "mail", "payload": {"to": recipient, "subject": subject, "text": message.text}}
            for recipient in dict.fromkeys(message.to)
            if _ADDRESS.fullmatch(recipient)
        ]


class OutboxQueue:
    """The outbox as the dispatcher sees it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(self, count: int, lane: OutboxLane = _EVERY_LANE) -> list[ClaimedMessage]:
        """Return messages of a lane that are due. No other replica gets them within the next 20 seconds."""
        due = (
            select(outbox.c.id)
            .where(outbox.c.delivered_at.is_(None), outbox.c.abandoned_at.is_(None), outbox.c.due_at <= NOW)
            .where(lane.condition())
            .order_by(outbox.c.due_at)
            .limit(count)
            .with_for_update(skip_locked=True)
        )
        statement = (
            update(outbox)
            .where(outbox.c.id.in_(due.scalar_subquery()))
            .values(due_at=NOW + _CLAIM, attempts=outbox.c.attempts + 1)
            .returning(
                outbox.c.id, outbox.c.kind, outbox.c.payload, outbox.c.attempts, outbox.c.created_at, NOW
            )
        )
        async with self._database.transaction() as connection:
            return [ClaimedMessage(*row) for row in (await connection.execute(statement)).all()]

    async def delivered(self, message: ClaimedMessage) -> None:
        """Record that a message was sent."""
        await self._change(message, delivered_at=NOW, last_error="")

    async def failed(self, message: ClaimedMessage, error: str) -> bool:
        """Record a failure. The message is due again later.

        Return True if it is abandoned: a day has passed since it was written, and many attempts have failed.
        """
        delay = timedelta(seconds=min(_LONGEST_DELAY, _FIRST_DELAY * 2.0 ** min(message.attempt - 1, 10)))
        await self._change(message, due_at=NOW + delay, last_error=error[:_LONGEST_ERROR])
        expired = update(outbox).where(
            outbox.c.id == message.id,
            outbox.c.created_at <= NOW - _GIVE_UP_AFTER,
            outbox.c.attempts >= _FEWEST_ATTEMPTS,
            outbox.c.delivered_at.is_(None),
        )
        async with self._database.transaction() as connection:
            return (await connection.execute(expired.values(abandoned_at=NOW))).rowcount > 0

    async def abandoned(self, message: ClaimedMessage, error: str) -> None:
        """Record that a message can never be sent."""
        await self._change(message, abandoned_at=NOW, last_error=error[:_LONGEST_ERROR])

    async def _change(self, message: ClaimedMessage, **values: Any) -> None:
        # A later attempt has another number: a replica that was thought dead changes nothing of it.
        same = (
            outbox.c.id == message.id,
            outbox.c.attempts == message.attempt,
            outbox.c.delivered_at.is_(None),
        )
        async with self._database.transaction() as connection:
            await connection.execute(update(outbox).where(*same).values(**values))


def endpoint_id(url: str) -> str:
    """Return the name of a webhook in the database. Its URL may have a secret, and is not stored."""
    return hashlib.sha256(url.encode()).hexdigest()[:16]
