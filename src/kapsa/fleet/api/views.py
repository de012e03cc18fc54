"""Requests and responses that belong to the API itself, and not to a use case."""

from datetime import datetime
from typing import Annotated

import msgspec

from kapsa.fleet.domain.principals import Role
from kapsa.fleet.domain.registry.clusters import ClusterEnvironment
from kapsa.fleet.domain.rollout.deployments import RolloutEvent

__all__ = [
    "ApprovalDecision",
    "DeletionResult",
    "DeploymentHistory",
    "RetryDeployment",
    "RollBackDeployment",
    "ServerHealth",
    "SessionView",
    "SignInWithToken",
]


class ServerHealth(msgspec.Struct, frozen=True, rename="camel"):
    """The health of the manager itself."""

    status: str
    version: str
    database: str


class SignInWithToken(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A request for a session by a token, for development."""

    token: str

    def __repr__(self) -> str:
        return "SignInWithToken(...)"  # the token must not appear in logs


class SessionView(msgspec.Struct, frozen=True, rename="camel"):
    """The caller, as the manager sees it."""

    subject: str
    roles: tuple[Role, ...]
    environments: tuple[ClusterEnvironment, ...]
    """Environments that the caller owns."""
    email: str
    expires_at: datetime
    csrf_token: str
    """Repeat it as `X-CSRF-Token` in requests that change something. Empty unless this is a browser session."""


class DeletionResult(msgspec.Struct, frozen=True, rename="camel"):
    """The result of a deletion."""

    notices: tuple[str, ...] = ()
    """Remains elsewhere that could not be removed, and the remedy."""


class RetryDeployment(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A request for another attempt."""

    force_reason: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    """Admins: deploy a withdrawn version for this reason."""


class RollBackDeployment(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A request to roll back."""

    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]


class DeploymentHistory(msgspec.Struct, frozen=True, rename="camel"):
    """A part of the history of a deployment, oldest first."""

    items: tuple[RolloutEvent, ...]
    last_sequence: int
    """Pass it as `after` to continue."""


class ApprovalDecision(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A decision on an approval."""

    comment: Annotated[str, msgspec.Meta(max_length=2000)] = ""
