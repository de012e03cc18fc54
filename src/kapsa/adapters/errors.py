"""What can go wrong with systems outside the cluster (git servers, registries) and with what tenants hand in, as types.

The tree; `retryable` says whether the same call can succeed later with nothing changed by anybody here:

    ExternalError
    ├── Refused          an address, a reference, a path or an answer that is not taken
    │   ├── TooLarge     more than the limit allows
    │   └── RenderFailed a chart, a kustomization or a manifest that makes no objects
    ├── AuthFailed       the credentials are missing, wrong or not enough
    ├── NotFound         there is no such repository, commit, file or image
    ├── Failed           a program or a server answered with something nobody expected  retryable
    └── Unreachable      no usable answer: refused, reset, 5xx, 429                     retryable
        └── TimedOut     no answer in time                                              retryable

`reason` is one word for conditions and programs, the message is for people, `hint` says what to do about it. None of them
ever holds a secret: whoever raises them passes the text through `kapsa.adapters.redaction` first.
"""
# ruff: noqa: N818 - each is named as what happened

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "AuthFailed",
    "ExternalError",
    "ExternalFailure",
    "ExternalNotFound",
    "LimitExceeded",
    "Refused",
    "RenderFailed",
    "TimedOut",
    "Unreachable",
]


class ExternalError(Exception):
    """The root: something outside did not do what was asked."""

    retryable: ClassVar[bool] = False
    """Whether the same call can succeed later although nobody here changed anything."""
    default_reason: ClassVar[str] = "Failed"

    def __init__(
        self, message: str, *, hint: str = "", reason: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.hint = hint
        """What to do about it; empty where the message says it all."""
        self.reason = reason or self.default_reason
        """One word for programs, such as `AuthFailed`."""
        self.retry_after = retry_after
        """Seconds that the other side asked to wait, when it did."""


class Refused(ExternalError):
    """It was not even tried, or not taken: the input breaks a rule. The message names the rule."""

    default_reason = "Refused"


class LimitExceeded(Refused):
    """More than the limit allows."""

    default_reason = "TooLarge"


class RenderFailed(Refused):
    """A chart, a kustomization or a manifest cannot be turned into objects. The message says what to change."""

    default_reason = "RenderFailed"


class AuthFailed(ExternalError):
    """The credentials are missing, wrong, or not enough. A retry helps once they were changed."""

    default_reason = "AuthFailed"


class ExternalNotFound(ExternalError):
    """There is no such thing; some servers also say so to those who may not see it."""

    default_reason = "NotFound"


class ExternalFailure(ExternalError):
    """A program or a server ended in a way that nobody expected, which may pass."""

    retryable = True
    default_reason = "Failed"


class Unreachable(ExternalError):
    """There was no usable answer."""

    retryable = True
    default_reason = "Unreachable"


class TimedOut(Unreachable):
    """There was no answer in time."""

    default_reason = "TimedOut"
