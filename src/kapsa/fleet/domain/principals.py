"""People and programs that call the API, and what their roles permit on an object."""

import enum

import msgspec

from kapsa.fleet.domain.registry.clusters import ClusterEnvironment

__all__ = ["Principal", "Role"]


class Role(enum.StrEnum):
    """The roles of the seed's table."""

    ADMIN = "Admin"
    OPERATOR = "Operator"
    VIEWER = "Viewer"
    ENVIRONMENT_OWNER = "EnvironmentOwner"


class Principal(msgspec.Struct, frozen=True):
    """An authenticated caller."""

    subject: str
    roles: frozenset[Role]
    owned: frozenset[ClusterEnvironment] = frozenset()
    """Environments that an EnvironmentOwner owns."""
    email: str = ""

    def has(self, *roles: Role) -> bool:
        """Return whether the principal has one of these roles."""
        return bool(self.roles.intersection(roles))

    def owns(self, environment: ClusterEnvironment) -> bool:
        """Return whether the principal may decide for this environment: its owner may, and an admin."""
        return Role.ADMIN in self.roles or (
            Role.ENVIRONMENT_OWNER in self.roles and environment in self.owned
        )
