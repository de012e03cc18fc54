"""The history of a repository's branches, which decides whether a commit was ever accepted: fetched without files."""

from __future__ import annotations

import tempfile
from pathlib import Path

from kapsa.adapters.errors import ExternalFailure
from kapsa.adapters.git._failures import not_written
from kapsa.adapters.git._repository_cache import ALL_HISTORY, disk_usage
from kapsa.adapters.git.address import check_commit
from kapsa.adapters.git.client import Git
from kapsa.adapters.git.credentials import GitCredentials

__all__ = ["BranchHistory"]

_KEPT = 10_000
_WITHOUT_FILES = "tree:0"


class BranchHistory:
    """Looks for commits in the branches of repositories, and keeps the result: a fetch of all history is expensive."""

    def __init__(self, git: Git) -> None:
        self._git = git
        self._results: dict[tuple[str, str, GitCredentials | None], bool] = {}

    async def contains(self, url: str, commit: str, *, credentials: GitCredentials | None = None) -> bool:
        """Return whether a branch of the repository is at the commit, or at one that was made on top of it.

        Raises `ExternalError`, which is `retryable` if a later try can succeed.
        """
        key = (url, check_commit(commit), credentials)
        if key not in self._results:
            result = await self._look(url, commit, credentials)
            if len(self._results) >= _KEPT:
                self._results.clear()
            self._results[key] = result
        return self._results[key]

    async def _look(self, url: str, commit: str, credentials: GitCredentials | None) -> bool:
        try:
            scratch = tempfile.TemporaryDirectory(prefix="kapsa-history-", ignore_cleanup_errors=True)
        except OSError as error:
            raise not_written("the directory for temporary files", error) from error
        with scratch as directory:
            repository = Path(directory)
            created = await self._git.local(
                repository, ("init", "--quiet", "--bare", "--template=", directory)
            )
            if created.code:
                raise ExternalFailure(f"git init failed: {created.stderr.strip()[-200:]}")
            await self._git.fetch(
                repository,
                url,
                ["+refs/heads/*:refs/heads/*"],
                credentials=credentials,
                depth=ALL_HISTORY,
                without=_WITHOUT_FILES,
                measure=lambda: disk_usage(repository),
            )
            # Only branches were fetched: what is here at all is in their history.
            checked = await self._git.local(
                repository, ("cat-file", "-e", "--end-of-options", f"{commit}^{{commit}}")
            )
            return checked.code == 0
