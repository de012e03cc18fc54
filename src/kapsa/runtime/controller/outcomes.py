"""Outcomes of a run: what `reconcile` returns or raises to decide when the resource runs again."""

from __future__ import annotations

import msgspec

__all__ = ["NotOursError", "OutdatedError", "Requeue", "TerminalError"]


class Requeue(msgspec.Struct, frozen=True):
    """Reconcile again later. Returned from reconcile(); an exception backs off instead."""

    after: float
    """Seconds until the next run, at least a few milliseconds. An event for the resource triggers it earlier."""

    def __post_init__(self) -> None:
        if not isinstance(self.after, int | float):
            raise TypeError(f"Requeue(after=...) must be a number of seconds, got {self.after!r}")
        if self.after < 0:
            raise ValueError(f"Requeue(after=...) must not be negative, got {self.after}")


class TerminalError(Exception):
    """A failure that retrying cannot fix. Raised from reconcile(); the resource waits until it is changed.

    The text is published in an event, so it must not contain a secret.
    """


class NotOursError(TerminalError):
    """A child could not be applied because another resource controls an object of its name."""


class OutdatedError(Exception):
    """The resource has changed since the run began, so what the run is about to write may be out of date."""
