"""When a request is sent again, and when it is better not to.

A request is repeated only if the server cannot have acted on it (429, a connection that was never made), or if
acting twice is the same as acting once (reads, apply, merge patches, deletes, replaces). A create and a JSON patch
whose fate is unknown are *not* repeated: the second attempt would report AlreadyExists for our own object, or make
a second one under generateName. The error goes to the caller, whose next reconcile looks at what is really there.
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
    """How many retries a whole client may still make.

    Each retry takes one, each success gives a tenth back: a healthy client always has plenty, and one whose
    server is drowning adds at most a tenth to the flood.
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
    """How often and how long one request is tried."""

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
        """Tries in all, the first included."""
        self._patience = patience
        """Seconds spent waiting between tries, in all, before the error is raised."""
        self._first = first
        self._longest = longest
        self.budget = budget or RetryBudget()
        self._rng = rng or random.Random()  # noqa: S311 - jitter, not secrecy

    def delay(self, error: ClientError, *, attempt: int, waited: float, idempotent: bool) -> float | None:
        """Seconds to wait before the next try, or None to raise `error`. `attempt` counts from 1."""
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
            # A plain 500 is a bug or a failing webhook, for the caller's back-off; with Retry-After it is
            # the server asking for another try.
            return idempotent and error.retry_after is not None
        return isinstance(error, Unavailable | Timeout) and idempotent
