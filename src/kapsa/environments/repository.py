"""Repositories: a bare cache of each, and checkouts of exact commits.

A commit is fetched by its name, so it does not matter whether a branch, only a pull request, or since a force-push nothing at
all leads to it. What was fetched with one set of credentials is never shown to another: a repository's place in the cache
depends on both. The cache can be lost at any time; its least recently used parts are, when it grows past its limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
import weakref
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from kapsa.environments.checkout import Checkout, CheckoutLimits, export
from kapsa.environments.git import Git
from kapsa.environments.git_address import check_branch, check_commit, is_commit
from kapsa.environments.git_credentials import GitCredentials
from kapsa.environments.outside import Failed, NotFound

__all__ = ["Commit", "Repositories"]

_MIB = 1024 * 1024
_KEPT = "refs/kapsa"
_ALL_HISTORY = 2_147_483_647
"""The depth that git understands as all of it, also in a shallow repository."""
_LOOK_AGAIN = 0.05


class Commit(msgspec.Struct, frozen=True):
    """A commit, in short."""

    sha: str
    committed_at: datetime
    subject: str


class _Source(msgspec.Struct, frozen=True):
    """What is fetched, and as whom."""

    url: str
    credentials: GitCredentials | None = None
    branch: str | None = None
    pull_request: int | None = None

    @property
    def key(self) -> str:
        who = msgspec.json.encode(self.credentials) if self.credentials is not None else b""
        return hashlib.sha256(self.url.encode() + b"\0" + who).hexdigest()[:40]

    @property
    def hints(self) -> list[str]:
        """References that should lead to the commit, for servers that give out only what a reference leads to."""
        found = [f"refs/heads/{check_branch(self.branch)}"] if self.branch else []
        if self.pull_request is not None:
            found += [f"refs/pull/{self.pull_request}/head", f"refs/merge-requests/{self.pull_request}/head"]
        return found


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
        self._bare = directory / "repositories"
        self._instances = directory / "checkouts"
        self._git = git
        self._max_bytes = max_bytes
        self._max_checkouts = max_checkouts
        self._limits = limits or CheckoutLimits()
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._shared: dict[tuple[str, str], _Shared] = {}
        self._mine: Path | None = None

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

        :raises OutsideError: whose `retryable` says whether a later try can succeed.
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

    async def commit(
        self,
        url: str,
        commit: str,
        *,
        credentials: GitCredentials | None = None,
        branch: str | None = None,
        pull_request: int | None = None,
    ) -> Commit:
        """When a commit was made, and what its first line says. The commit is fetched if need be."""
        source = self._source(url, credentials, branch, pull_request)
        check_commit(commit)
        async with self._lock(source.key), self._opened(source) as repository:
            await self._ensure(repository, source, commit)
            finished = await self._git.local(
                repository,
                ("log", "-1", "--format=%ct%x00%s", "--no-show-signature", "--end-of-options", commit),
            )
        seconds, _, subject = finished.output.decode("utf-8", "replace").strip().partition("\0")
        if finished.code or not seconds.isdigit():
            raise Failed(f"commit {commit[:12]} can't be read from the cache")
        # A commit's time is its author's word: one in a far future must not break anything.
        return Commit(commit, datetime.fromtimestamp(min(int(seconds), 253_402_300_799), UTC), subject[:200])

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

        :raises NotFound: there is none, or there are several.
        """
        wanted = beginning.removesuffix("...").lower()
        if is_commit(wanted):
            return wanted
        source = self._source(url, credentials, branch, pull_request)
        try:
            return (await self._git.ls_remote(url, credentials)).complete(wanted)
        except NotFound:
            if not source.hints or not wanted.isalnum():
                raise
        async with self._lock(source.key), self._opened(source) as repository:
            await self._fetch_hinted(repository, source)
            finished = await self._git.local(
                repository, ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{wanted}^{{commit}}")
            )
        found = finished.output.decode("ascii", "replace").strip()
        if finished.code or not is_commit(found):
            raise NotFound(
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

    def _source(
        self, url: str, credentials: GitCredentials | None, branch: str | None, pull_request: int | None
    ) -> _Source:
        return _Source(self._git.address(url).url, credentials, branch, pull_request)

    def _lock(self, key: str) -> asyncio.Lock:
        return self._locks.setdefault(key, asyncio.Lock())

    @contextlib.asynccontextmanager
    async def _opened(self, source: _Source) -> AsyncIterator[Path]:
        """The bare repository, held against other processes meanwhile."""
        repository = self._bare / f"{source.key}.git"
        self._bare.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._bare / f"{source.key}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while not _locked(descriptor):  # noqa: ASYNC110 - another process holds it, and gives no sign
                await asyncio.sleep(_LOOK_AGAIN)
            os.utime(descriptor)  # what was used last is removed last
            await self._prepare(repository)
            yield repository
        except Failed:  # nobody knows why, so the cache may be broken: the next try begins with a new one
            await asyncio.to_thread(shutil.rmtree, repository, ignore_errors=True)
            raise
        finally:
            os.close(descriptor)

    async def _prepare(self, repository: Path) -> None:
        if (repository / "HEAD").exists():
            # With the lock in hand, git's own locks are what a killed process left.
            for stale in (*repository.glob("*.lock"), *repository.glob("objects/pack/tmp_*")):
                stale.unlink(missing_ok=True)
            return
        await asyncio.to_thread(shutil.rmtree, repository, ignore_errors=True)
        finished = await self._git.local(
            repository, ("init", "--quiet", "--bare", "--template=", str(repository))
        )
        if finished.code:
            raise Failed(f"the cache of repositories can't be written: {finished.complaint.strip()[-200:]}")

    async def _export(self, source: _Source, commit: str) -> Checkout:
        async with self._opened(source) as repository:
            await self._ensure(repository, source, commit)
            root = Path(tempfile.mkdtemp(prefix=f"{commit[:12]}-", dir=self._own_directory())).resolve()
            try:
                return await export(self._git, repository, commit, root / "tree", self._limits)
            except BaseException:
                await asyncio.to_thread(shutil.rmtree, root, ignore_errors=True)
                raise

    async def _ensure(self, repository: Path, source: _Source, commit: str) -> None:
        """Have the commit in the repository."""
        if await self._has(repository, commit):
            return
        try:
            await self._fetch(repository, source, [f"{commit}:{_KEPT}/{commit}"])
        except NotFound as error:
            if error.reason != "CommitNotFound":
                raise
            await self._search(repository, source, commit)
        await asyncio.to_thread(self._evict, repository)

    async def _search(self, repository: Path, source: _Source, commit: str) -> None:
        """Look for the commit behind references: this server gives out nothing by name, or does not have it."""
        await self._fetch_hinted(repository, source)
        if not await self._has(repository, commit):
            with contextlib.suppress(NotFound):
                everything = [
                    f"+refs/{kind}/*:{_KEPT}/{kind}/*" for kind in ("heads", "pull", "merge-requests")
                ]
                await self._fetch(repository, source, everything, depth=_ALL_HISTORY)
        if not await self._has(repository, commit):
            raise NotFound(
                f"{source.url} has no commit {commit}",
                hint="It may have been on another repository, or removed since: push it, or name another commit",
                reason="CommitNotFound",
            )

    async def _fetch_hinted(self, repository: Path, source: _Source) -> None:
        for hint in source.hints:
            with contextlib.suppress(NotFound):
                await self._fetch(repository, source, [f"+{hint}:{_KEPT}/{hint}"], depth=_ALL_HISTORY)

    async def _fetch(self, repository: Path, source: _Source, refspecs: list[str], *, depth: int = 1) -> None:
        await self._git.fetch(
            repository,
            source.url,
            refspecs,
            credentials=source.credentials,
            depth=depth,
            measure=lambda: _disk_usage(repository),
        )

    async def _has(self, repository: Path, commit: str) -> bool:
        finished = await self._git.local(
            repository, ("cat-file", "-e", "--end-of-options", f"{commit}^{{commit}}")
        )
        return finished.code == 0

    def _own_directory(self) -> Path:
        """Where this process keeps its checkouts. Those of processes that are gone are removed."""
        if self._mine is not None:
            return self._mine
        self._instances.mkdir(parents=True, exist_ok=True)
        for other in self._instances.iterdir():
            if (descriptor := _free(other)) is not None:
                shutil.rmtree(other, ignore_errors=True)
                os.close(descriptor)
        mine = Path(tempfile.mkdtemp(dir=self._instances))
        descriptor = os.open(mine, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        weakref.finalize(self, os.close, descriptor)
        self._mine = mine
        return mine

    def _surplus_checkouts(self) -> list[Path]:
        """Forget the least recently used checkouts that nobody reads; what is returned can be removed."""
        unread = [key for key, shared in self._shared.items() if shared.readers == 0]
        surplus = max(0, len(self._shared) - self._max_checkouts)
        return [self._shared.pop(key).checkout.root.parent for key in unread[:surplus]]

    def _evict(self, current: Path) -> None:
        """Remove the least recently used repositories until the cache fits, this one excepted."""
        sizes = {path: _disk_usage(path) for path in self._bare.glob("*.git")}
        total = sum(sizes.values())
        for path in sorted(sizes, key=lambda path: _used_at(path.with_suffix(".lock"))):
            if total <= self._max_bytes:
                return
            if path != current and (descriptor := _free(path.with_suffix(".lock"))) is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(descriptor)
                total -= sizes[path]


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _free(path: Path) -> int | None:
    """A descriptor that holds this lock, if nobody else does."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    if _locked(descriptor):
        return descriptor
    os.close(descriptor)
    return None


def _used_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _disk_usage(directory: Path) -> int:
    return sum(size for size in _file_sizes(directory))


def _file_sizes(directory: Path) -> Iterator[int]:
    for parent, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):
                yield os.lstat(os.path.join(parent, name)).st_size  # noqa: PTH118 - many files, and strings are enough
