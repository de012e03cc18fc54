"""A connection that gives up when the server is silent.

The limits of a session are kept by its server process: one that hangs keeps none of them, and while its host answers,
TCP finds nothing wrong. Only the client can end such a wait.
"""

import asyncio
import os
import socket
from typing import Any, TypeVar

from psycopg import AsyncConnection
from psycopg.abc import PQGen

__all__ = ["ANSWER_LIMIT", "TCP_LIMITS", "BoundedConnection"]

ANSWER_LIMIT = 75.0
"""Seconds for each answer: longer than the limits that the server itself keeps."""
TCP_LIMITS = {
    "keepalives": 1,
    "keepalives_idle": 20,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 40_000,  # milliseconds
}
"""Parameters of libpq: a host that is gone is noticed within 40 seconds."""

_Result = TypeVar("_Result")


class BoundedConnection(AsyncConnection[Any]):
    """A connection of psycopg that is cut off when an answer takes longer than `answer_limit`."""

    answer_limit: float | None = ANSWER_LIMIT
    """Seconds for each answer; None to wait as long as it takes."""

    async def wait(self, gen: PQGen[_Result], *args: Any, **options: Any) -> _Result:
        """Wait for an answer. It fails like a lost connection when none comes in time."""
        if self.answer_limit is None:
            return await super().wait(gen, *args, **options)
        timer = asyncio.get_running_loop().call_later(self.answer_limit, self._cut_off)
        try:
            return await super().wait(gen, *args, **options)
        finally:
            timer.cancel()

    def _cut_off(self) -> None:
        if not self.closed:
            with socket.socket(fileno=os.dup(self.pgconn.socket)) as own:
                own.shutdown(socket.SHUT_RDWR)
