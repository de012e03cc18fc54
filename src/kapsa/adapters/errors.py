"""Errors of systems outside the cluster (git servers, registries) and of input that tenants provide.

`retryable` is True if the same call can succeed later without a change on our side:

    ExternalError
    ├── Refused               an address, a reference, a path or a response that is not accepted
    │   ├── LimitExceeded     more than a limit allows
    │   └── RenderFailed      a chart, a kustomization or a manifest that does not render
    ├── AuthFailed            credentials that are missing, wrong or insufficient
    ├── ExternalNotFound      a repository, commit, file or image that does not exist
    ├── ExternalFailure       an unexpected result of a program or a server             retryable
    └── Unreachable           no usable response: refused, reset, 5xx, 429              retryable
        └── TimedOut          no response in time                                       retryable

`reason` is one word for conditions and programs, the message is for people, and `hint` is the remedy. No
error contains a secret: the text passes through `kapsa.adapters.redaction` before it is raised.
"""
# ruff: noqa: N818 - each is named after what happened

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
    """The base of all errors of external systems."""

    retryable: ClassVar[bool] = False
    """True if the same call can succeed later without a change on our side."""
    default_reason: ClassVar[str] = "Failed"

    def __init__(
        self, message: str, *, hint: str = "", reason: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.hint = hint
        """The remedy; empty if the message is enough."""
        self.reason = reason or self.default_reason
        """One word for programs, such as `AuthFailed`."""
        self.retry_after = retry_after
        """Seconds to wait, if the server asked for that."""


class Refused(ExternalError):
    """Input that breaks a rule, which the message names. A retry does not help."""

    default_reason = "Refused"


class LimitExceeded(Refused):
    """More than a limit allows."""

    default_reason = "TooLarge"


class RenderFailed(Refused):
    """A chart, a kustomization or a manifest that does not render. The message names the mistake."""

    default_reason = "RenderFailed"


class AuthFailed(ExternalError):
    """Credentials that are missing, wrong or insufficient. A retry helps only after they change."""

    default_reason = "AuthFailed"


class ExternalNotFound(ExternalError):
    """Something that does not exist. Some servers also return this without sufficient credentials."""

    default_reason = "NotFound"


class ExternalFailure(ExternalError):
    """An unexpected result of a program or a server, which may be temporary."""

    retryable = True
    default_reason = "Failed"


class Unreachable(ExternalError):
    """No usable response."""

    retryable = True
    default_reason = "Unreachable"


class TimedOut(Unreachable):
    """No response in time."""

    default_reason = "TimedOut"
