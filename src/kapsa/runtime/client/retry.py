"""Retries of requests, where they are safe.

A request is retried only if the server cannot have processed it (429, a connection that failed to open), or
if processing it twice has the same effect as once (reads, apply, merge patches, deletes, replaces). A create
and a JSON patch whose outcome is unknown are *not* retried: the second attempt would fail with AlreadyExists
for our own object, or create a second one under generateName. The caller gets the error, and its next
reconcile reads the actual state.
"""

import random

from kapsa.runtime.errors import (
    ClientError,
    InternalError,
    Timeout,
    TooManyRequests,
    TransportError,
    Unavailable,
)

__all__ = ["RetryBudget", "RetryPolicy"]


class RetryBudget:
    """The number of retries that a client may still make.

    Each retry takes one, and each success returns a tenth: a healthy client never runs out, and a client of
    an overloaded server adds at most a tenth to its load.
    """

    def __init__(self, size: float = 100.0, refill: float = 0.1) -> None:
        self._size = size
        self._refill = refill
        self._left = size

    @property
    def left(self) -> float:
        return self._left

    def succeeded(self) -> None:
        if self._left < self._size:
            self._left = min(self._size, self._left + self._refill)

    def take(self) -> bool:
        if self._left < 1:
            return False
        self._left -= 1
        return True


class RetryPolicy:
    """The number of attempts of one request, and the delays between them."""

    def __init__(
        self,
        *,
        attempts: int = 6,
        patience: float = 30.0,
        first: float = 0.1,
        longest: float = 10.0,
        budget: RetryBudget | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._attempts = attempts
        """Attempts in total, including the first."""
        self._patience = patience
        """Total seconds of delay after which the error is raised."""
        self._first = first
        self._longest = longest
        self.budget = budget or RetryBudget()
        self._rng = rng or random.Random()  # noqa: S311 - jitter, not secrecy

    def delay(self, error: ClientError, *, attempt: int, waited: float, idempotent: bool) -> float | None:
        """Return the seconds until the next attempt, or None to raise `error`. `attempt` counts from 1."""
        if attempt >= self._attempts or not self._may_repeat(error, idempotent):
            return None
        if error.retry_after is not None:
            delay = error.retry_after * self._rng.uniform(1.0, 1.1)
        else:
            delay = min(self._longest, self._first * 2.0 ** (attempt - 1)) * self._rng.uniform(0.5, 1.0)
        if waited + delay > self._patience or not self.budget.take():
            return None
        return delay

    @staticmethod
    def _may_repeat(error: ClientError, idempotent: bool) -> bool:
        if isinstance(error, TooManyRequests):
            return True
        if isinstance(error, TransportError):
            return error.retryable and (idempotent or not error.sent)
        if isinstance(error, InternalError):
            # A 500 is a bug or a failing webhook, which the caller's back-off handles; with Retry-After the
            # server requests another attempt.
            return idempotent and error.retry_after is not None
        return isinstance(error, Unavailable | Timeout) and idempotent
