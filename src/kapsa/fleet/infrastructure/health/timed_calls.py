"""The time of a client's last attempt. Delays between attempts, as after a 429, say nothing about a webhook."""

import contextvars
import weakref
from collections.abc import Awaitable
from typing import TypeVar

from kapsa.runtime import Call, Client

__all__ = ["TimedCalls"]

T = TypeVar("T")

_attempts: contextvars.ContextVar[list[float] | None] = contextvars.ContextVar("attempts", default=None)
_observed: weakref.WeakSet[Client] = weakref.WeakSet()


def _record(call: Call, code: int, seconds: float) -> None:
    attempts = _attempts.get()
    if attempts is not None:
        attempts.append(seconds)


class TimedCalls:
    """Times the calls of one client, each in the task that makes it."""

    def __init__(self, client: Client) -> None:
        if client not in _observed:
            _observed.add(client)
            client.observe(_record)

    async def run(self, call: Awaitable[T]) -> tuple[T | Exception, float]:
        """Return the result or the error of a call, and the seconds of its last attempt."""
        attempts: list[float] = []
        token = _attempts.set(attempts)
        try:
            return await call, attempts[-1] if attempts else 0.0
        except Exception as error:
            return error, attempts[-1] if attempts else 0.0
        finally:
            _attempts.reset(token)
