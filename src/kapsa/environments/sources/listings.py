"""Listings: what projects' repositories show, kept for as long as it is fresh enough.

The one place that asks git servers what there is. Projects poll through it, and environments ask it for what they need to
know, so that a hundred environments of one project cost one request.
"""

from __future__ import annotations

import itertools
from datetime import datetime
from typing import Any

import msgspec

from kapsa.adapters.errors import ExternalError
from kapsa.adapters.git.client import Refs
from kapsa.environments.metrics import EnvironmentMetrics
from kapsa.environments.ports import ListsRefs
from kapsa.environments.resources import Project
from kapsa.environments.sources.repository_access import RepositoryAccess
from kapsa.runtime import Context

__all__ = ["Listing", "Listings"]


_MISSED_KEPT = 10_000


class Listing(msgspec.Struct, frozen=True):
    """What a repository showed."""

    refs: Refs
    at: datetime
    number: int
    """Tells it from all others since the operator started."""


class Listings:
    """The last listing of each project."""

    def __init__(self, git: ListsRefs, access: RepositoryAccess, metrics: EnvironmentMetrics) -> None:
        self._git = git
        self._access = access
        self._metrics = metrics
        self._known: dict[str, Listing] = {}
        self._numbers = itertools.count(1)
        self._missed: set[tuple[str, str]] = set()

    def known(self, project: Project) -> Listing | None:
        """The last complete listing, if there was one since the operator started."""
        return self._known.get(_identity(project))

    async def showing(self, commit: str, ctx: Context[Any], project: Project) -> Listing:
        """A listing that shows the commit; if none does, one that was made since the commit was first asked for.

        :raises ExternalError: there is none.
        """
        known = self.known(project)
        if known is not None and commit in {
            *known.refs.branches.values(),
            *known.refs.pull_requests.values(),
        }:
            return known
        asked = (_identity(project), commit)
        if known is not None and asked in self._missed:
            return known
        listing = await self.fresh(ctx, project)
        if len(self._missed) >= _MISSED_KEPT:
            self._missed.clear()
        self._missed.add(asked)
        return listing

    async def fresh(self, ctx: Context[Any], project: Project) -> Listing:
        """Ask the repository.

        :raises ExternalError: it did not answer, or not with a complete listing.
        """
        try:
            credentials = await self._access.credentials(ctx, project)
            refs = await self._git.ls_remote(project.spec.source.repository_url, credentials)
        except ExternalError as error:
            self._metrics.git_polls.labels(error.reason).inc()
            raise
        self._metrics.git_polls.labels("success").inc()
        listing = Listing(refs, ctx.now(), next(self._numbers))
        self._known[_identity(project)] = listing
        return listing

    def forget(self, project: Project) -> None:
        """The project is gone."""
        for identity in [each for each in self._known if each.startswith(project.metadata.uid)]:
            del self._known[identity]


def _identity(project: Project) -> str:
    """A project whose address was changed has not been listed yet."""
    return f"{project.metadata.uid} {project.spec.source.repository_url}"
