"""The history of a repository's branches, which decides whether a commit was ever accepted: fetched without files."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from kapsa.adapters.git._repository_cache import ALL_HISTORY, disk_usage
from kapsa.adapters.git._scratch_repository import WITHOUT_FILES, scratch_repository
from kapsa.adapters.git.address import check_commit
from kapsa.adapters.git.client import Git
from kapsa.adapters.git.credentials import GitCredentials

__all__ = ["BranchHistory"]

_Source: TypeAlias = tuple[str, GitCredentials | None]
"""The URL of a repository, and the credentials for it: they decide who may see it."""
_KEPT = 10_000


class _Search:
    """The search for commits of one repository, in one fetch."""

    def __init__(self) -> None:
        self.commits: set[str] = set()
        self.task: asyncio.Task[Mapping[str, bool]] | None = None


class BranchHistory:
    """Looks for commits in the branches of repositories, and keeps the result: a fetch of all history is expensive.

    Commits that are looked for until a fetch begins share it, and its failure.
    """

    def __init__(self, git: Git, scratch: Callable[[], Path]) -> None:
        self._git = git
        self._scratch = scratch
        """Returns the directory for fetches, which is removed with the process."""
        self._results: dict[tuple[_Source, str], bool] = {}
        self._searches: dict[_Source, _Search] = {}
        self._locks: weakref.WeakValueDictionary[_Source, asyncio.Lock] = weakref.WeakValueDictionary()

    async def contains(self, url: str, commit: str, *, credentials: GitCredentials | None = None) -> bool:
        """Return whether a branch of the repository is at the commit, or at one that was made on top of it.

        Raises `ExternalError`, which is `retryable` if a later try can succeed.
        """
        source = (url, credentials)
        if (result := self._results.get((source, check_commit(commit)))) is not None:
            return result
        search = self._searches.setdefault(source, _Search())
        search.commits.add(commit)
        if search.task is None:
            search.task = asyncio.create_task(self._search(source, search), name=f"history of {url}")
            search.task.add_done_callback(_retrieve)
        # Shielded: the others wait for it, too.
        return (await asyncio.shield(search.task))[commit]

    async def _search(self, source: _Source, search: _Search) -> Mapping[str, bool]:
        async with self._locks.setdefault(source, asyncio.Lock()):
            del self._searches[source]  # from here on, commits are for the next fetch
            results = await self._look(source, sorted(search.commits))
        if len(self._results) >= _KEPT:
            self._results.clear()
        self._results.update({(source, commit): result for commit, result in results.items()})
        return results

    async def _look(self, source: _Source, commits: Sequence[str]) -> dict[str, bool]:
        url, credentials = source
        async with scratch_repository(self._git, self._scratch) as repository:
            await self._git.fetch(
                repository,
                url,
                ["+refs/heads/*:refs/heads/*"],
                credentials=credentials,
                depth=ALL_HISTORY,
                without=WITHOUT_FILES,
                measure=lambda: disk_usage(repository),
            )
            return {commit: await self._has(repository, commit) for commit in commits}

    async def _has(self, repository: Path, commit: str) -> bool:
        """Return whether a commit is there: only branches were fetched, so it is in their history then."""
        checked = await self._git.local(
            repository, ("cat-file", "-e", "--end-of-options", f"{commit}^{{commit}}")
        )
        return checked.code == 0


def _retrieve(task: asyncio.Task[Mapping[str, bool]]) -> None:
    """Retrieve the failure of a search, so that it is not logged as lost if all its callers were cancelled."""
    if not task.cancelled():
        task.exception()
