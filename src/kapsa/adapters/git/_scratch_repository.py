"""A repository for one question about commits: created empty, and deleted with all that was fetched."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from kapsa.adapters.errors import ExternalFailure
from kapsa.adapters.git._failures import not_written
from kapsa.adapters.git.client import Git

__all__ = ["WITHOUT_FILES", "scratch_repository"]

WITHOUT_FILES = "tree:0"
"""The filter of a fetch that brings commits only."""


@asynccontextmanager
async def scratch_repository(git: Git, parent: Callable[[], Path] | None = None) -> AsyncIterator[Path]:
    """Create an empty bare repository, and delete it at the end.

    `parent` returns the directory to create it in, which may fail; by default that of the system for temporary files.
    """
    try:
        scratch = tempfile.TemporaryDirectory(
            prefix="kapsa-commits-", dir=parent() if parent else None, ignore_cleanup_errors=True
        )
    except OSError as error:
        raise not_written("the directory for temporary files", error) from error
    with scratch as directory:
        repository = Path(directory).resolve()
        created = await git.local(repository, ("init", "--quiet", "--bare", "--template=", directory))
        if created.code:
            raise ExternalFailure(f"git init failed: {created.stderr.strip()[-200:]}")
        yield repository
