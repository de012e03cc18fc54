"""Requests and responses that belong to the API itself, and not to a use case."""

from datetime import datetime

import msgspec

from kapsa.fleet.domain.clusters import ClusterEnvironment
from kapsa.fleet.domain.principals import Role

__all__ = ["DeletionResult", "ServerHealth", "SessionView", "SignInWithToken"]


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
