"""Roles in a token: `Admin`, `Operator`, `Viewer`, `EnvironmentOwner:Production`. Others are ignored."""

from collections.abc import Iterable, Mapping
from typing import Any

from kapsa.fleet.domain.principals import Principal, Role
from kapsa.fleet.domain.registry.clusters import ClusterEnvironment

__all__ = ["principal_of"]

_MOST_ROLES = 200


def principal_of(claims: Mapping[str, Any], roles_claim: str) -> Principal:
    """Return the principal that the claims of a verified token describe."""
    texts = list(_texts(_claim(claims, roles_claim)))[:_MOST_ROLES]
    owned = frozenset(
        ClusterEnvironment(environment)
        for role, _, environment in (text.partition(":") for text in texts)
        if role == Role.ENVIRONMENT_OWNER and environment in list(ClusterEnvironment)
    )
    roles = {Role(text) for text in texts if text in list(Role) and text != Role.ENVIRONMENT_OWNER}
    if owned:
        roles.add(Role.ENVIRONMENT_OWNER)
    email = claims.get("email")
    return Principal(
        str(claims["sub"]),
        frozenset(roles),
        owned,
        email if isinstance(email, str) and len(email) <= 254 and email.isprintable() else "",
    )


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """Return a claim by its name, or by a path such as `realm_access.roles`."""
    if name in claims:
        return claims[name]
    value: Any = claims
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        return value.split()
    return (each for each in value if isinstance(each, str)) if isinstance(value, list) else ()
