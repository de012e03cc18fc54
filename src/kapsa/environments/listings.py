"""Listings: what projects' repositories show, kept for as long as it is fresh enough.

The one place that asks git servers what there is. Projects poll through it, and environments ask it for what they need to
know, so that a hundred environments of one project cost one request.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from kapsa.environments.dependencies import ListsRefs
from kapsa.environments.git import Refs
from kapsa.environments.interests import Interests
from kapsa.environments.metrics import EnvironmentMetrics
from kapsa.environments.outside import OutsideError
from kapsa.environments.repository_access import RepositoryAccess
from kapsa.environments.resources import Project
from kapsa.runtime import Context

__all__ = ["Listing", "Listings"]


class Listing(msgspec.Struct, frozen=True):
    """What a repository showed."""

    refs: Refs
    at: datetime
    number: int
    """Counts the listings of a project since the operator started."""


class Listings:
    """The last listing of each project."""

    def __init__(self, git: ListsRefs, access: RepositoryAccess, metrics: EnvironmentMetrics) -> None:
        self._git = git
        self._access = access
        self._metrics = metrics
        self._known: dict[str, Listing] = {}

    def known(self, project: Project) -> Listing | None:
        """The last complete listing, if there was one since the operator started."""
        return self._known.get(_identity(project))

    async def at_most(
        self, seconds: float, ctx: Context[Any], project: Project, interests: Interests
    ) -> Listing:
        """A listing no older than this.

        :raises OutsideError: there is none.
        """
        known = self.known(project)
        if known is not None and (ctx.now() - known.at).total_seconds() < seconds:
            return known
        return await self.fresh(ctx, project, interests)

    async def fresh(self, ctx: Context[Any], project: Project, interests: Interests) -> Listing:
        """Ask the repository.

        :raises OutsideError: it did not answer, or not with a complete listing.
        """
        try:
            credentials = await self._access.credentials(ctx, project, interests)
            refs = await self._git.ls_remote(project.spec.source.repository_url, credentials)
        except OutsideError as error:
            self._metrics.git_polls.labels(error.reason).inc()
            raise
        self._metrics.git_polls.labels("success").inc()
        known = self.known(project)
        listing = Listing(refs, ctx.now(), known.number + 1 if known is not None else 1)
        self._known[_identity(project)] = listing
        return listing

    def forget(self, project: Project) -> None:
        """The project is gone."""
        for identity in [each for each in self._known if each.startswith(project.metadata.uid)]:
            del self._known[identity]


def _identity(project: Project) -> str:
    """A project whose address was changed has not been listed yet."""
    return f"{project.metadata.uid} {project.spec.source.repository_url}"
