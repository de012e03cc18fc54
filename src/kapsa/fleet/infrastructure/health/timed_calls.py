"""The time of a client's last attempt. Delays between attempts, as after a 429, prove nothing about a webhook."""

import asyncio
import contextvars
import weakref
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import TypeVar

from kapsa.runtime import Call, Client

__all__ = ["ServerBusy", "TimedCalls"]

T = TypeVar("T")

_attempts: contextvars.ContextVar[list[float] | None] = contextvars.ContextVar("attempts", default=None)
_answers: contextvars.ContextVar[list[int] | None] = contextvars.ContextVar("answers", default=None)
_BUSY = frozenset({429, 502, 503, 504})
_observed: weakref.WeakSet[Client] = weakref.WeakSet()


def _record(call: Call, code: int, seconds: float) -> None:
    attempts = _attempts.get()
    if attempts is not None:
        attempts.append(seconds)
    answers = _answers.get()
    if answers is not None:
        answers.append(code)


class ServerBusy(Exception):  # noqa: N818 - named after what happened
    """The time of a probe ran out while the API server was too busy to carry it out."""


class TimedCalls:
    """A timer of the calls of one client, each in the task that makes it."""

    def __init__(self, client: Client) -> None:
        if client not in _observed:
            _observed.add(client)
            client.observe(_record)

    @asynccontextmanager
    async def limited(self, seconds: float) -> AsyncIterator[None]:
        """End calls after a time. Raises `TimeoutError`, or `ServerBusy` if that was the API server's last answer."""
        answers: list[int] = []
        token = _answers.set(answers)
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            if answers and answers[-1] in _BUSY:
                raise ServerBusy(f"the API server answered {answers[-1]} for {seconds:g} seconds") from None
            raise
        finally:
            _answers.reset(token)

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
