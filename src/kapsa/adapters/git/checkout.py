"""A checkout: the files of one commit in a directory, written so that nothing leads out of it.

git lists the files and their sizes before a byte is written, so that an oversized commit is rejected early.
The files are written here and not by git: no filter, attribute or hook runs. Symbolic links are created last.
Those that lead out of the checkout are omitted, and an error names them when their path is read.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO

import msgspec

from kapsa.adapters.errors import (
    ExternalError,
    ExternalFailure,
    ExternalNotFound,
    LimitExceeded,
    Refused,
    TimedOut,
)
from kapsa.adapters.git._failures import not_written
from kapsa.adapters.git.client import Git

__all__ = ["Checkout", "CheckoutLimits", "check_path", "export"]

_MIB = 1024 * 1024
_SUBMODULE, _LINK, _EXECUTABLE = "160000", "120000", "100755"
_LONGEST_PATH = 1024
_LONGEST_LINK = 1024
_LISTING_SECONDS = 30.0


class CheckoutLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The most that one commit may contain."""

    files: int = 50_000
    total_bytes: int = 512 * _MIB
    file_bytes: int = 128 * _MIB


class Checkout(msgspec.Struct, frozen=True):
    """The files of one commit, shared by all readers. Do not modify them."""

    commit: str
    root: Path
    omitted: Mapping[str, str] = {}
    """Paths that were omitted, with the reason: links that leave the checkout, and submodules."""
    size: int = 0
    """Total size of all files in bytes."""

    def directory(self, path: str) -> Path:
        """Return a directory of the commit, from which nothing was omitted.

        Raises `ExternalNotFound` when it does not exist, and `Refused` when it, or a link in it, leaves the
        checkout.
        """
        directory = self.resolve(path)
        if not directory.is_dir():
            raise ExternalNotFound(f"{path!r} is a file, not a directory", reason="PathNotFound")
        inside = PurePosixPath(os.fsdecode(os.fsencode(directory.relative_to(self.root))))
        for name, why in self.omitted.items():
            if PurePosixPath(name).is_relative_to(inside):
                raise Refused(f"{name!r} {why}", hint="Replace it with a file", reason="PathRefused")
        return directory

    def resolve(self, path: str) -> Path:
        """Return a file or directory of the commit, with links resolved.

        Raises `ExternalNotFound` when it does not exist, and `Refused` when the path leaves the checkout.
        """
        relative = check_path(path)
        for name, why in self.omitted.items():
            if relative.is_relative_to(name):
                raise Refused(f"{name!r} {why}", reason="PathRefused")
        try:
            resolved = (self.root / relative).resolve(strict=True)
        except (OSError, RuntimeError):
            raise ExternalNotFound(
                f"commit {self.commit[:12]} has no {str(relative)!r}",
                hint="Check the path, which is relative to the root of the repository",
                reason="PathNotFound",
            ) from None
        if not resolved.is_relative_to(self.root):
            raise Refused(f"{path!r} leaves the repository", reason="PathRefused")
        return resolved


def check_path(path: str) -> PurePosixPath:
    """Return a path relative to the root of a repository.

    Raises `Refused` when the path is empty or absolute, or could lead out of the repository.
    """
    if not path or len(path) > _LONGEST_PATH or not path.isprintable() or "\\" in path:
        raise Refused(f"{path[:80]!r} is not a valid path in a repository", reason="PathRefused")
    pure = PurePosixPath(path)
    if path.startswith(("~", "-")):
        raise Refused(
            f"{path!r} starts with {path[0]!r}, which programs do not read as part of a path; write "
            f"{'./' + path!r}",
            reason="PathRefused",
        )
    if pure.is_absolute() or ".." in pure.parts:
        raise Refused(
            f"{path!r} leaves the repository: use a path relative to its root, without '..'",
            reason="PathRefused",
        )
    if any(part.lower() == ".git" for part in pure.parts):
        raise Refused(f"{path!r} is in git's own directory", reason="PathRefused")
    return pure


class _Entry(msgspec.Struct, frozen=True):
    mode: str
    object: str
    size: int
    path: str


async def export(git: Git, repository: Path, commit: str, root: Path, limits: CheckoutLimits) -> Checkout:
    """Write the files of a commit into a directory that does not exist yet.

    Raises `LimitExceeded` when the commit is too large, and `Refused` when one of its paths is not allowed.
    """
    entries = await _listing(git, repository, commit, limits)
    contents = root.with_name(f"{root.name}.objects")
    objects = dict.fromkeys(entry.object for entry in entries if entry.mode != _SUBMODULE)
    total = sum(entry.size for entry in entries)
    try:
        if objects:
            finished = await git.local(
                repository,
                ("cat-file", "--batch"),
                stdin="".join(f"{name}\n" for name in objects).encode(),
                output_file=contents,
                output_bytes=total + 256 * len(objects),
            )
            if finished.code:
                raise ExternalFailure(f"commit {commit[:12]} cannot be read from the cache")
        omitted = await asyncio.to_thread(_write, entries, contents, root)
    except OSError as error:
        raise _unwritable(commit, error) from error
    finally:
        contents.unlink(missing_ok=True)
    return Checkout(commit, root, omitted, total)


def _unwritable(commit: str, error: OSError) -> ExternalError:
    if error.errno in (
        errno.ENAMETOOLONG,
        errno.ENOTDIR,
        errno.EEXIST,
        errno.EISDIR,
        errno.ELOOP,
        errno.EILSEQ,
    ):
        return Refused(
            f"commit {commit[:12]} cannot be written to disk: {error.strerror}",
            hint="One of its paths is not valid on this file system",
            reason="PathRefused",
        )
    return not_written(f"commit {commit[:12]}", error)


async def _listing(git: Git, repository: Path, commit: str, limits: CheckoutLimits) -> list[_Entry]:
    too_many = LimitExceeded(
        f"commit {commit[:12]} has more than {limits.files} files or directories",
        reason="RepositoryTooLarge",
    )
    try:
        finished = await git.local(
            repository,
            ("ls-tree", "-r", "-z", "-l", "--full-tree", "--end-of-options", commit),
            output_bytes=limits.files * 400,
            seconds=_LISTING_SECONDS,
        )
    except (LimitExceeded, TimedOut):
        # Empty directories are not listed but take time. A retry would take as long.
        raise too_many from None
    if finished.code:
        raise ExternalFailure(f"commit {commit[:12]} cannot be read from the cache")
    entries = [_entry(record) for record in finished.output.split(b"\0") if record]
    if len(entries) > limits.files:
        raise too_many
    for entry in entries:
        if entry.size > limits.file_bytes:
            raise LimitExceeded(
                f"{entry.path!r} in commit {commit[:12]} is larger than {limits.file_bytes // _MIB} MB",
                reason="RepositoryTooLarge",
            )
    if sum(entry.size for entry in entries) > limits.total_bytes:
        raise LimitExceeded(
            f"commit {commit[:12]} has more than {limits.total_bytes // _MIB} MB of files",
            reason="RepositoryTooLarge",
        )
    return entries


def _entry(record: bytes) -> _Entry:
    description, _, name = record.partition(b"\t")
    mode, _, object_name, size = description.decode("ascii").split()
    path = os.fsdecode(name)
    parts = path.split("/")
    if path.startswith("/") or any(part in ("", ".", "..") or part.lower() == ".git" for part in parts):
        raise Refused(f"the commit contains the path {path!r}, which is not allowed", reason="PathRefused")
    return _Entry(mode, object_name, int(size) if size.isdigit() else 0, path)


def _write(entries: list[_Entry], contents: Path, root: Path) -> dict[str, str]:
    root.mkdir(mode=0o755)
    by_object: dict[str, list[_Entry]] = {}
    omitted: dict[str, str] = {}
    links: dict[str, str] = {}
    for entry in entries:
        if entry.mode == _SUBMODULE:
            omitted[entry.path] = "is a submodule, which is not fetched"
        else:
            by_object.setdefault(entry.object, []).append(entry)
    if by_object:
        with contents.open("rb") as packed:
            for name, content in _objects(packed):
                for entry in by_object[name]:
                    if entry.mode == _LINK:
                        links[entry.path] = os.fsdecode(content)
                    else:
                        _write_file(root / entry.path, content, executable=entry.mode == _EXECUTABLE)
    return omitted | _link(root, links)


def _objects(packed: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    while header := packed.readline():
        name, kind, size = header.decode("ascii").split()
        if kind != "blob":
            raise ExternalFailure(f"object {name} is a {kind}, expected a blob")
        content = packed.read(int(size))
        packed.read(1)
        yield name, content


def _write_file(path: Path, content: bytes, *, executable: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(
        path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o755 if executable else 0o644
    )
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _link(root: Path, links: Mapping[str, str]) -> dict[str, str]:
    """Create all links, then remove those that leave the checkout. One link can lead through another."""
    omitted: dict[str, str] = {}
    made: dict[Path, str] = {}
    for name, target in links.items():
        if not target or len(target) > _LONGEST_LINK or "\0" in target:
            omitted[name] = "is a broken symbolic link"
            continue
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)
        made[path] = name
    for path, name in list(made.items()):
        target = os.readlink(path)  # noqa: PTH115 - as it was written, not normalised
        leads_to = Path(os.path.realpath(path))
        if os.path.isabs(target) or not leads_to.is_relative_to(root):  # noqa: PTH117
            omitted[name] = f"is a symbolic link to {target!r}, which leaves the repository"
        elif path.parent.is_relative_to(leads_to):
            # A walk of the directories would not end, and with two such links grow exponentially.
            omitted[name] = f"is a symbolic link to {target!r}, a directory that contains it"
    for path, name in made.items():
        if name in omitted:
            path.unlink()
    return omitted
