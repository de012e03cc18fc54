"""The rules of a route, declared once in its `opt`: who may call it, how often, and how it is audited.

The middleware enforces them, the OpenAPI document shows them, and the authorization tests are generated from them.
"""

import enum
from typing import Any

import msgspec

from kapsa.fleet.domain.principals import Role
from kapsa.fleet.orchestrator.ports.requests.rate_limits import WRITES, RateLimit

__all__ = [
    "ADMINS",
    "ANY_QUERY",
    "DECIDERS",
    "EVERYBODY",
    "EVERY_ROLE",
    "READERS",
    "WRITERS",
    "AuditClass",
    "RouteAccess",
    "access_of",
    "admin_write",
    "open_to_all",
    "read",
    "write",
]

ADMINS = frozenset({Role.ADMIN})
WRITERS = frozenset({Role.ADMIN, Role.OPERATOR})
READERS = EVERY_ROLE = frozenset(Role)
DECIDERS = frozenset({Role.ADMIN, Role.ENVIRONMENT_OWNER})
EVERYBODY: frozenset[Role] = frozenset()

_KEY = "access"
ANY_QUERY = "any_query"
"""The key in `opt` of a route that ignores query parameters which it does not have."""


class AuditClass(enum.StrEnum):
    """The trace that a call leaves in the audit log."""

    NONE = "none"
    WRITE = "write"
    """An entry in the transaction of the write."""


class RouteAccess(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of one route."""

    roles: frozenset[Role]
    """Roles that may call it: one is enough. Which objects they may touch is decided by the use case."""
    rate_limit: RateLimit | None = None
    audit: AuditClass = AuditClass.NONE
    authenticated: bool = True
    """False for the few routes that need no token."""


def read(roles: frozenset[Role] = READERS, *, limit: RateLimit | None = None) -> dict[str, Any]:
    """Return the `opt` of a route that changes nothing."""
    return {_KEY: RouteAccess(roles=roles, rate_limit=limit)}


def write(roles: frozenset[Role] = WRITERS, *, limit: RateLimit = WRITES) -> dict[str, Any]:
    """Return the `opt` of a route that changes something."""
    return {_KEY: RouteAccess(roles=roles, rate_limit=limit, audit=AuditClass.WRITE)}


def admin_write(*, limit: RateLimit = WRITES) -> dict[str, Any]:
    """Return the `opt` of a route that changes something, for admins only."""
    return write(ADMINS, limit=limit)


def open_to_all() -> dict[str, Any]:
    """Return the `opt` of a route that needs no token."""
    return {_KEY: RouteAccess(roles=EVERYBODY, authenticated=False)}


def access_of(opt: dict[str, Any]) -> RouteAccess | None:
    """Return the rules in the `opt` of a route; None for the OPTIONS that litestar adds to every path."""
    return opt.get(_KEY)
