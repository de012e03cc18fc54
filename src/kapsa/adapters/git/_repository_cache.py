"""The cache of repositories: a bare repository for each address and set of credentials.

A commit is fetched by its hash, so it does not matter whether a branch, a pull request or, after a
force-push, no reference leads to it. Content fetched with one set of credentials is never visible to another:
both are part of a repository's key. The cache can be lost at any time. When it exceeds its limit, the least
recently used repositories are removed.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec

from kapsa.adapters.errors import ExternalFailure, ExternalNotFound, LimitExceeded
from kapsa.adapters.git._failures import not_written
from kapsa.adapters.git.address import check_branch
from kapsa.adapters.git.client import Git
from kapsa.adapters.git.credentials import GitCredentials
from kapsa.adapters.process.file_lock import lock, lock_if_free

__all__ = ["ALL_HISTORY", "RepositoryCache", "Source", "disk_usage"]

_KEPT_REFS = "refs/kapsa"
ALL_HISTORY = 2_147_483_647
"""The depth that stands for the complete history, also in a shallow repository."""
_POLL_SECONDS = 0.05
_MOST_COLLISIONS = 64
"""Objects with the same abbreviation beyond this number were made on purpose, and none of them is chosen."""


class Source(msgspec.Struct, frozen=True):
    """The address to fetch from, the credentials for it, and hints where the commit is."""

    url: str
    credentials: GitCredentials | None = None
    branch: str | None = None
    pull_request: int | None = None

    @property
    def key(self) -> str:
        """The repository's key in the cache."""
        login = msgspec.json.encode(self.credentials) if self.credentials is not None else b""
        return hashlib.sha256(self.url.encode() + b"\0" + login).hexdigest()[:40]

    @property
    def hints(self) -> list[str]:
        """References that should lead to the commit, for servers that do not serve commits by hash."""
        references = [f"refs/heads/{check_branch(self.branch)}"] if self.branch else []
        if self.pull_request is not None:
            references += [
                f"refs/pull/{self.pull_request}/head",
                f"refs/merge-requests/{self.pull_request}/head",
            ]
        return references


class RepositoryCache:
    """Bare repositories in a directory that several processes can share."""

    def __init__(self, directory: Path, git: Git, *, max_bytes: int) -> None:
        self._directory = directory
        self._git = git
        self._max_bytes = max_bytes

    @contextlib.asynccontextmanager
    async def opened(self, source: Source) -> AsyncIterator[Path]:
        """Yield the path of the bare repository, locked against other processes.

        Raises `ExternalFailure` when the disk is full or not writable.
        """
        try:
            async with self._locked(source) as repository:
                yield repository
        except OSError as error:
            raise not_written(f"the cache of repositories in {self._directory}", error) from error

    @contextlib.asynccontextmanager
    async def _locked(self, source: Source) -> AsyncIterator[Path]:
        repository = self._directory / f"{source.key}.git"
        self._directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(
            self._directory / f"{source.key}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        try:
            while not lock(descriptor):  # noqa: ASYNC110 - another process holds it, without a notification
                await asyncio.sleep(_POLL_SECONDS)
            os.utime(descriptor)  # the most recently used is removed last
            await self._prepare(repository)
            yield repository
        except (
            ExternalFailure
        ):  # the cause is unclear and the cache may be broken: the next try starts from scratch
            await asyncio.to_thread(shutil.rmtree, repository, ignore_errors=True)
            raise
        finally:
            os.close(descriptor)

    async def _prepare(self, repository: Path) -> None:
        if (repository / "HEAD").exists():
            # We hold the lock, so git's own locks were left by a killed process.
            for stale in (*repository.glob("*.lock"), *repository.glob("objects/pack/tmp_*")):
                stale.unlink(missing_ok=True)
            return
        await asyncio.to_thread(shutil.rmtree, repository, ignore_errors=True)
        finished = await self._git.local(
            repository, ("init", "--quiet", "--bare", "--template=", str(repository))
        )
        if finished.code:
            raise ExternalFailure(
                f"the cache of repositories cannot be written: {finished.stderr.strip()[-200:]}"
            )

    async def ensure(self, repository: Path, source: Source, commit: str) -> None:
        """Fetch the commit into the repository, unless it is there already.

        Raises `ExternalNotFound` when the server does not have it.
        """
        if await self._has(repository, commit):
            return
        used = any((repository / "objects" / "pack").glob("*.pack"))
        try:
            await self._fetch_within_limit(repository, source, commit)
        except LimitExceeded:
            if not used:
                raise
            # Earlier commits counted towards the limit. This one may fit alone.
            await self._fetch_within_limit(repository, source, commit)
        await asyncio.to_thread(self._evict, repository)

    async def _fetch_within_limit(self, repository: Path, source: Source, commit: str) -> None:
        try:
            await self._fetch_commit(repository, source, commit)
        except LimitExceeded:
            # The partial fetch exceeds the limit, and would count as fetched the next time.
            await asyncio.to_thread(shutil.rmtree, repository, ignore_errors=True)
            await self._prepare(repository)
            raise

    async def _fetch_commit(self, repository: Path, source: Source, commit: str) -> None:
        try:
            await self._fetch(repository, source, [f"{commit}:{_KEPT_REFS}/{commit}"])
        except ExternalNotFound as error:
            if error.reason != "CommitNotFound":
                raise
            await self._search(repository, source, commit)

    async def _search(self, repository: Path, source: Source, commit: str) -> None:
        """Look for the commit behind references.

        The server does not serve it by hash, or does not have it.
        """
        await self.follow_hints(repository, source)
        if not await self._has(repository, commit):
            with contextlib.suppress(ExternalNotFound):
                refspecs = [
                    f"+refs/{kind}/*:{_KEPT_REFS}/{kind}/*" for kind in ("heads", "pull", "merge-requests")
                ]
                await self._fetch(repository, source, refspecs, depth=ALL_HISTORY)
        if not await self._has(repository, commit):
            raise ExternalNotFound(
                f"{source.url} has no commit {commit}",
                hint="It may be in another repository, or was removed: push it, or use another commit",
                reason="CommitNotFound",
            )

    async def follow_hints(self, repository: Path, source: Source) -> None:
        """Fetch the whole history of the references that should lead to the commit."""
        for hint in source.hints:
            with contextlib.suppress(ExternalNotFound):
                await self._fetch(repository, source, [f"+{hint}:{_KEPT_REFS}/{hint}"], depth=ALL_HISTORY)

    async def in_history(self, repository: Path, source: Source, prefix: str) -> list[str]:
        """Return the commits that start with `prefix` in the fetched history of the source's hints.

        The repository also has commits of other pull requests, and objects that are not commits.
        """
        finished = await self._git.local(repository, ("rev-parse", f"--disambiguate={prefix}"))
        objects = finished.output.decode("ascii", "replace").split() if not finished.code else []
        if len(objects) > _MOST_COLLISIONS:
            return []
        return [each for each in objects if await self._leads_to(repository, source, each)]

    async def _leads_to(self, repository: Path, source: Source, commit: str) -> bool:
        for hint in source.hints:
            arguments = ("merge-base", "--is-ancestor", "--end-of-options", commit, f"{_KEPT_REFS}/{hint}")
            if (await self._git.local(repository, arguments)).code == 0:
                return True
        return False

    async def _fetch(self, repository: Path, source: Source, refspecs: list[str], *, depth: int = 1) -> None:
        await self._git.fetch(
            repository,
            source.url,
            refspecs,
            credentials=source.credentials,
            depth=depth,
            measure=lambda: disk_usage(repository),
        )

    async def _has(self, repository: Path, commit: str) -> bool:
        finished = await self._git.local(
            repository, ("cat-file", "-e", "--end-of-options", f"{commit}^{{commit}}")
        )
        return finished.code == 0

    def _evict(self, current: Path) -> None:
        """Remove the least recently used repositories, except this one, until the cache fits."""
        sizes = {path: disk_usage(path) for path in self._directory.glob("*.git")}
        total = sum(sizes.values())
        for path in sorted(sizes, key=lambda path: _used_at(path.with_suffix(".lock"))):
            if total <= self._max_bytes:
                return
            if path != current and (descriptor := lock_if_free(path.with_suffix(".lock"))) is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(descriptor)
                total -= sizes[path]


def _used_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def disk_usage(directory: Path) -> int:
    """Return the size of all files in a directory."""
    return sum(size for size in _file_sizes(directory))


def _file_sizes(directory: Path) -> Iterator[int]:
    for parent, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):
                yield os.lstat(os.path.join(parent, name)).st_size  # noqa: PTH118 - many files, and strings are enough
