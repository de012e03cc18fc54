"""Repositories: checkouts of exact commits, and the full hashes of abbreviated ones."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
import weakref
from collections.abc import AsyncIterator
from pathlib import Path

from kapsa.adapters.errors import ExternalNotFound
from kapsa.adapters.git._repository_cache import RepositoryCache, Source
from kapsa.adapters.git.address import check_commit, is_commit
from kapsa.adapters.git.branch_history import BranchHistory
from kapsa.adapters.git.checkout import Checkout, CheckoutLimits, export
from kapsa.adapters.git.client import Git
from kapsa.adapters.git.credentials import GitCredentials
from kapsa.adapters.process.file_lock import directory_lock, lock_if_free

__all__ = ["Repositories"]

_MIB = 1024 * 1024


class _Shared:
    """A checkout with its number of readers."""

    def __init__(self, checkout: Checkout) -> None:
        self.checkout = checkout
        self.readers = 0


class Repositories:
    """Fetched repositories, and the checkouts in use. Several processes can share the directory."""

    def __init__(
        self,
        directory: Path,
        git: Git,
        *,
        max_bytes: int = 8192 * _MIB,
        max_checkouts: int = 50,
        limits: CheckoutLimits | None = None,
    ) -> None:
        self._cache = RepositoryCache(directory / "repositories", git, max_bytes=max_bytes)
        self._instances = directory / "checkouts"
        self._git = git
        self._history = BranchHistory(git, self._own_directory)
        self._max_checkouts = max_checkouts
        self._limits = limits or CheckoutLimits()
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._shared: dict[tuple[str, str], _Shared] = {}
        self._instance: Path | None = None
        self._instance_lock: weakref.finalize[..., Repositories] | None = None

    @contextlib.asynccontextmanager
    async def checkout(
        self,
        url: str,
        commit: str,
        *,
        credentials: GitCredentials | None = None,
        branch: str | None = None,
        pull_request: int | None = None,
    ) -> AsyncIterator[Checkout]:
        """Check out the files of a commit, which stay until the block ends.

        `branch` and `pull_request` are hints where to look for the commit on servers that do not serve
        commits by hash.

        Raises `ExternalError`, which is `retryable` if a later try can succeed.
        """
        source = self._source(url, credentials, branch, pull_request)
        key = (source.key, check_commit(commit))
        async with self._lock(source.key):
            if key not in self._shared:
                self._shared[key] = _Shared(await self._export(source, commit))
            shared = self._shared.pop(key)
            self._shared[key] = shared  # moved to the end: the most recently used
            shared.readers += 1
        try:
            yield shared.checkout
        finally:
            shared.readers -= 1
            for surplus in self._surplus_checkouts():
                await asyncio.to_thread(shutil.rmtree, surplus, ignore_errors=True)

    async def complete(
        self,
        url: str,
        abbreviated: str,
        *,
        credentials: GitCredentials | None = None,
        branch: str | None = None,
        pull_request: int | None = None,
    ) -> str:
        """Return the full hash of the only commit that starts with `abbreviated`.

        It is at a branch, or in the history of `branch` or of `pull_request`. Other pull requests do not count:
        anybody can open one from a fork.

        Raises `ExternalNotFound` when no commit or several commits match.
        """
        prefix = abbreviated.removesuffix("...").lower()
        if is_commit(prefix):
            return prefix
        source = self._source(url, credentials, branch, pull_request)
        try:
            return (await self._git.ls_remote(url, credentials)).complete(prefix, pull_request=pull_request)
        except ExternalNotFound:
            if not source.hints or not prefix.isalnum():
                raise
        async with self._lock(source.key), self._cache.opened(source) as repository:
            await self._cache.follow_hints(repository, source)
            commits = await self._cache.in_history(repository, source, prefix)
        if len(commits) != 1:
            raise ExternalNotFound(
                f"no commit, or more than one, starts with {prefix[:64]!r}",
                hint="Use the full commit hash",
            )
        return commits[0]

    async def in_branches(self, url: str, commit: str, *, credentials: GitCredentials | None = None) -> bool:
        """Return whether the commit is in the history of a branch, not only of pull requests.

        Raises `ExternalError`, which is `retryable` if a later try can succeed.
        """
        return await self._history.contains(self._git.address(url).url, commit, credentials=credentials)

    async def close(self) -> None:
        """Remove the checkouts. The cached repositories stay."""
        self._shared.clear()
        if self._instance is not None:
            await asyncio.to_thread(shutil.rmtree, self._instance, ignore_errors=True)
            self._instance = None
        if self._instance_lock is not None:
            self._instance_lock()

    def _source(
        self, url: str, credentials: GitCredentials | None, branch: str | None, pull_request: int | None
    ) -> Source:
        return Source(self._git.address(url).url, credentials, branch, pull_request)

    def _lock(self, key: str) -> asyncio.Lock:
        return self._locks.setdefault(key, asyncio.Lock())

    async def _export(self, source: Source, commit: str) -> Checkout:
        async with self._cache.opened(source) as repository:
            await self._cache.ensure(repository, source, commit)
            root = Path(tempfile.mkdtemp(prefix=f"{commit[:12]}-", dir=self._own_directory())).resolve()
            try:
                return await export(self._git, repository, commit, root / "repository", self._limits)
            except BaseException:
                await asyncio.to_thread(shutil.rmtree, root, ignore_errors=True)
                raise

    def _own_directory(self) -> Path:
        """Return the directory for the checkouts and other temporary files of this process.

        Remove those of processes that have exited.
        """
        if self._instance is not None:
            return self._instance
        self._instances.mkdir(parents=True, exist_ok=True)
        with directory_lock(self._instances):  # or another process would remove ours as stale
            for other in self._instances.iterdir():
                if (descriptor := lock_if_free(other)) is not None:
                    shutil.rmtree(other, ignore_errors=True)
                    os.close(descriptor)
            instance = Path(tempfile.mkdtemp(dir=self._instances))
            descriptor = lock_if_free(instance)
        assert descriptor is not None  # no other process has its path yet
        self._instance_lock = weakref.finalize(self, os.close, descriptor)
        self._instance = instance
        return instance

    def _surplus_checkouts(self) -> list[Path]:
        """Drop the least recently used checkouts without readers. Return their directories, for removal."""
        unread = [key for key, shared in self._shared.items() if shared.readers == 0]
        surplus = max(0, len(self._shared) - self._max_checkouts)
        return [self._shared.pop(key).checkout.root.parent for key in unread[:surplus]]
