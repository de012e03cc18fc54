"""Transactions of the database, which use cases open and hand to repositories."""

from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, Protocol, TypeAlias

__all__ = ["Connection", "DatabaseUnavailable", "Transactions"]

Connection: TypeAlias = Any
"""An open transaction. Opaque to the orchestrator, which passes it from one repository to the next."""


class DatabaseUnavailable(Exception):  # noqa: N818 - the name says what happened
    """A database that cannot be used now: away, busy or full. The same call may succeed later."""

    for_the_user = True


class Transactions(Protocol):
    """A source of transactions, and of the time that all replicas share."""

    def transaction(self, *, snapshot: bool = False) -> AbstractAsyncContextManager[Connection]:
        """Open a transaction. It commits when the block ends, and rolls back when the block raises.

        With `snapshot`, it only reads, and all its statements see the database at the same moment.
        """
        ...

    async def now(self) -> datetime:
        """Return the time of the database."""
        ...
