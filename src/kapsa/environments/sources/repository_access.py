"""Access to a project's repository: its credentials, which are read when needed and never stored."""

from __future__ import annotations

from typing import Any

from kapsa.adapters.errors import AuthFailed
from kapsa.adapters.git.credentials import GitCredentials
from kapsa.environments.resources import Project
from kapsa.runtime import Context, NotFound

__all__ = ["RepositoryAccess"]

SECRET = "v1/Secret"  # noqa: S105 - a kind


class RepositoryAccess:
    """A reader of the Secrets that projects name for git, in the project's own namespace only."""

    async def credentials(self, ctx: Context[Any], project: Project) -> GitCredentials | None:
        """Return the credentials of a project; None if it names none.

        Raises AuthFailed if the Secret does not exist or holds no credentials.
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
                f"Secret {name}, which the Project refers to for git, does not exist in namespace {project.namespace}",
                hint=f"Create Secret {name} with username and password, or with ssh-privatekey and known_hosts",
                reason="CredentialsMissing",
            ) from None
        return GitCredentials.from_secret(secret)
