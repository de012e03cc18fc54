"""How a project's repository is reached: its credentials, read when they are needed and kept nowhere."""

from __future__ import annotations

from typing import Any

from kapsa.adapters.errors import AuthFailed
from kapsa.adapters.git.credentials import GitCredentials
from kapsa.environments.resources import Project
from kapsa.runtime import Context, NotFound

__all__ = ["RepositoryAccess"]

SECRET = "v1/Secret"  # noqa: S105 - a kind


class RepositoryAccess:
    """Reads the Secrets that projects name for git. Only ones in the project's own namespace."""

    async def credentials(self, ctx: Context[Any], project: Project) -> GitCredentials | None:
        """The credentials of a project; None if it names none.

        :raises AuthFailed: there is no such Secret, or it holds none.
        """
        named = project.spec.source.credentials
        if named is None:
            return None
        name = named.secret_ref.name
        ctx.track(SECRET, name, namespace=project.namespace)
        try:
            secret = await ctx.client.get(SECRET, name, namespace=project.namespace)
        except NotFound:
            raise AuthFailed(
                f"there is no Secret {name} in namespace {project.namespace}, which the project names for git",
                hint=f"Create it with username and password, or ssh-privatekey and known_hosts: {name}",
                reason="CredentialsMissing",
            ) from None
        return GitCredentials.from_secret(secret)
