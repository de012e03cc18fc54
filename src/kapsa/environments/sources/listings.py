"""Listings: the branches and pull requests of projects' repositories, kept in memory.

Only this module lists repositories. Projects poll through it and environments share its result, so that a
hundred environments of one project cost one request.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

import msgspec

from kapsa.adapters.errors import ExternalError
from kapsa.adapters.git.client import Refs
from kapsa.environments.metrics import EnvironmentMetrics
from kapsa.environments.ports import CommitClock, RefLister
from kapsa.environments.resources import Project
from kapsa.environments.sources.repository_access import RepositoryAccess
from kapsa.runtime import Context

__all__ = ["Listing", "Listings"]


_MISSED_KEPT = 10_000


class Listing(msgspec.Struct, frozen=True):
    """The branches and pull requests of a repository at one time."""

    refs: Refs
    at: datetime
    number: int
    """The serial number, unique since the operator started."""


class Listings:
    """The last listing of each project."""

    def __init__(
        self, git: RefLister, clock: CommitClock, access: RepositoryAccess, metrics: EnvironmentMetrics
    ) -> None:
        self._git = git
        self._clock = clock
        self._access = access
        self._metrics = metrics
        self._last: dict[str, Listing] = {}
        self._numbers = itertools.count(1)
        self._missed: set[tuple[str, str]] = set()

    def last(self, project: Project) -> Listing | None:
        """Return the last complete listing, if there was one since the operator started."""
        return self._last.get(_identity(project))

    async def containing(self, commit: str, ctx: Context[Any], project: Project) -> Listing:
        """Return a listing that contains the commit, or one made since it was first requested.

        Raises ExternalError if there is none.
        """
        last = self.last(project)
        if last is not None and commit in {
            *last.refs.branches.values(),
            *last.refs.pull_requests.values(),
        }:
            return last
        request = (_identity(project), commit)
        if last is not None and request in self._missed:
            return last
        listing = await self.fresh(ctx, project)
        if len(self._missed) >= _MISSED_KEPT:
            self._missed.clear()
        self._missed.add(request)
        return listing

    async def fresh(self, ctx: Context[Any], project: Project) -> Listing:
        """List the repository.

        Raises ExternalError if the server does not respond with a complete listing.
        """
        try:
            credentials = await self._access.credentials(ctx, project)
            refs = await self._git.ls_remote(project.spec.source.repository_url, credentials)
        except ExternalError as error:
            self._metrics.git_polls.labels(error.reason).inc()
            raise
        self._metrics.git_polls.labels("success").inc()
        listing = Listing(refs, ctx.now(), next(self._numbers))
        self._last[_identity(project)] = listing
        return listing

    async def commit_times(
        self, commits: Collection[str], ctx: Context[Any], project: Project
    ) -> Mapping[str, datetime]:
        """Return when each of these commits was made. One whose time cannot be read is absent.

        Raises ExternalError if the server does not respond.
        """
        if not commits:
            return {}
        credentials = await self._access.credentials(ctx, project)
        return await self._clock.times(project.spec.source.repository_url, commits, credentials=credentials)

    def forget(self, project: Project) -> None:
        """Drop the listings of a deleted project."""
        for identity in [each for each in self._last if each.startswith(project.metadata.uid)]:
            del self._last[identity]


def _identity(project: Project) -> str:
    """Return the key of a project's listing; with another URL, the project has not been listed yet."""
    return f"{project.metadata.uid} {project.spec.source.repository_url}"
