"""The times of commits, which no listing of a repository contains: fetched without files, in a scratch repository."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path

from kapsa.adapters.errors import ExternalFailure, ExternalNotFound
from kapsa.adapters.git._scratch_repository import WITHOUT_FILES, scratch_repository
from kapsa.adapters.git.address import check_commit
from kapsa.adapters.git.client import Git
from kapsa.adapters.git.credentials import GitCredentials

__all__ = ["CommitTimes"]

_BATCH = 64
_KEPT = 50_000


class CommitTimes:
    """The times of commits, fetched once: a commit never changes."""

    def __init__(self, git: Git) -> None:
        self._git = git
        self._times: dict[str, datetime] = {}

    async def times(
        self, url: str, commits: Collection[str], *, credentials: GitCredentials | None = None
    ) -> dict[str, datetime]:
        """Return when each of these commits was made. One that the server does not serve by its hash is absent.

        Raises `ExternalError`, which is `retryable` if a later try can succeed.
        """
        missing = sorted({check_commit(each) for each in commits} - self._times.keys())
        if missing:
            fetched = await self._fetch_all(url, missing, credentials)
            if len(self._times) + len(fetched) > _KEPT:
                self._times.clear()
            self._times.update(fetched)
        return {each: self._times[each] for each in commits if each in self._times}

    async def _fetch_all(
        self, url: str, commits: Sequence[str], credentials: GitCredentials | None
    ) -> dict[str, datetime]:
        async with scratch_repository(self._git) as repository:
            for start in range(0, len(commits), _BATCH):
                await self._fetch(repository, url, commits[start : start + _BATCH], credentials)
            return await self._read(repository, commits)

    async def _fetch(
        self, repository: Path, url: str, commits: Sequence[str], credentials: GitCredentials | None
    ) -> None:
        """Fetch commits. If the server lacks one of them, it serves none: then each half is tried alone."""
        try:
            await self._git.fetch(
                repository,
                url,
                [f"{each}:refs/kapsa/{each}" for each in commits],
                credentials=credentials,
                without=WITHOUT_FILES,
            )
        except ExternalNotFound as error:
            if error.reason != "CommitNotFound":
                raise
            middle = len(commits) // 2
            for half in (commits[:middle], commits[middle:]) if middle else ():
                await self._fetch(repository, url, half, credentials)

    async def _read(self, repository: Path, commits: Sequence[str]) -> dict[str, datetime]:
        listed = await self._local(
            repository, "for-each-ref", "--format=%(objectname) %(committerdate:unix)", "refs/kapsa"
        )
        times: dict[str, datetime] = {}
        for line in listed.splitlines():
            commit, _, seconds = line.partition(" ")
            # A commit may claim any time, also one that no calendar has.
            with contextlib.suppress(ValueError, OverflowError, OSError):
                times[commit] = datetime.fromtimestamp(int(seconds), UTC)
        return {each: times[each] for each in commits if each in times}

    async def _local(self, repository: Path, *arguments: str) -> str:
        finished = await self._git.local(repository, arguments)
        if finished.code:
            raise ExternalFailure(f"git {arguments[0]} failed: {finished.stderr.strip()[-200:]}")
        return finished.output.decode("ascii", "replace")
