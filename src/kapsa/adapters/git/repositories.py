"""Repositories: checkouts of exact commits, shared by all who read them at a time, and commits by the beginning of their names."""

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
from kapsa.adapters.git.checkout import Checkout, CheckoutLimits, export
from kapsa.adapters.git.client import Git
from kapsa.adapters.git.credentials import GitCredentials
from kapsa.adapters.process.file_lock import directory_lock, lock_if_free

__all__ = ["Repositories"]

_MIB = 1024 * 1024


class _Shared:
    """A checkout that several may read at a time."""

    def __init__(self, checkout: Checkout) -> None:
        self.checkout = checkout
        self.readers = 0


class Repositories:
    """The repositories that were fetched, and the checkouts that are in use. Several processes can share the directory."""

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
        self._max_checkouts = max_checkouts
        self._limits = limits or CheckoutLimits()
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._shared: dict[tuple[str, str], _Shared] = {}
        self._mine: Path | None = None
        self._lock_of_mine: weakref.finalize[..., Repositories] | None = None

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
        """The files of exactly this commit, for as long as the context lasts.

        `branch` and `pull_request` say where the commit should be found, which helps with servers that do not give out
        commits by name.

        :raises ExternalError: whose `retryable` says whether a later try can succeed.
        """
        source = self._source(url, credentials, branch, pull_request)
        key = (source.key, check_commit(commit))
        async with self._lock(source.key):
            if key not in self._shared:
                self._shared[key] = _Shared(await self._export(source, commit))
            shared = self._shared.pop(key)
            self._shared[key] = shared  # to the end: it was used last
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
        beginning: str,
        *,
        credentials: GitCredentials | None = None,
        branch: str | None = None,
        pull_request: int | None = None,
    ) -> str:
        """The whole name of the commit that begins like this, on what the repository shows or in a branch's history.

        :raises ExternalNotFound: there is none, or there are several.
        """
        wanted = beginning.removesuffix("...").lower()
        if is_commit(wanted):
            return wanted
        source = self._source(url, credentials, branch, pull_request)
        try:
            return (await self._git.ls_remote(url, credentials)).complete(wanted)
        except ExternalNotFound:
            if not source.hints or not wanted.isalnum():
                raise
        async with self._lock(source.key), self._cache.opened(source) as repository:
            await self._cache.follow_hints(repository, source)
            finished = await self._git.local(
                repository, ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{wanted}^{{commit}}")
            )
        found = finished.output.decode("ascii", "replace").strip()
        if finished.code or not is_commit(found):
            raise ExternalNotFound(
                f"no commit, or more than one, begins with {wanted[:64]!r}",
                hint="Give all 40 digits of the commit",
            )
        return found

    async def close(self) -> None:
        """Remove the checkouts. The repositories stay for the next time."""
        self._shared.clear()
        if self._mine is not None:
            await asyncio.to_thread(shutil.rmtree, self._mine, ignore_errors=True)
            self._mine = None
        if self._lock_of_mine is not None:
            self._lock_of_mine()

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
        """Where this process keeps its checkouts. Those of processes that are gone are removed."""
        if self._mine is not None:
            return self._mine
        self._instances.mkdir(parents=True, exist_ok=True)
        with directory_lock(self._instances):  # or another process takes ours for one of somebody who is gone
            for other in self._instances.iterdir():
                if (descriptor := lock_if_free(other)) is not None:
                    shutil.rmtree(other, ignore_errors=True)
                    os.close(descriptor)
            mine = Path(tempfile.mkdtemp(dir=self._instances))
            descriptor = lock_if_free(mine)
        assert descriptor is not None  # nobody else knows of it
        self._lock_of_mine = weakref.finalize(self, os.close, descriptor)
        self._mine = mine
        return mine

    def _surplus_checkouts(self) -> list[Path]:
        """Forget the least recently used checkouts that nobody reads; what is returned can be removed."""
        unread = [key for key, shared in self._shared.items() if shared.readers == 0]
        surplus = max(0, len(self._shared) - self._max_checkouts)
        return [self._shared.pop(key).checkout.root.parent for key in unread[:surplus]]
