"""The arguments of git: values from tenants follow the end of its options."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from kapsa.adapters.errors import Refused
from kapsa.adapters.git.client import Git
from kapsa.adapters.testing.git_server import GitRepository, GitServer


@pytest.fixture
def git(tmp_path: Path) -> Git:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return Git(protocols=["http"], timeout=20, scratch=scratch)


async def arguments_of(
    git_server: GitServer, url: str, command: str, call: Coroutine[Any, Any, Any]
) -> list[str]:
    """Return the command line of git, read while it waits for the server."""
    git_server.hangs = True
    making = asyncio.create_task(call)
    await git_server.hanging()
    lines = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            lines.append((process / "cmdline").read_bytes().decode().split("\0")[:-1])
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making
    (command_line,) = (line for line in lines if url in line and command in line)
    return command_line


async def test_an_address_follows_the_end_of_options_when_a_repository_is_listed(
    git: Git, git_server: GitServer, git_repository: GitRepository
) -> None:
    url = git_repository.url
    arguments = await arguments_of(git_server, url, "ls-remote", git.ls_remote(url))
    assert arguments[arguments.index(url) - 1] == "--end-of-options"


async def test_address_and_references_follow_the_end_of_options_when_a_commit_is_fetched(
    git: Git, git_server: GitServer, git_repository: GitRepository, tmp_path: Path
) -> None:
    url, bare = git_repository.url, tmp_path / "bare.git"
    git_repository.git("init", "--bare", "--quiet", str(bare))
    fetching = git.fetch(bare, url, ["refs/heads/main:refs/heads/main"])
    arguments = await arguments_of(git_server, url, "fetch", fetching)
    assert arguments[arguments.index("--end-of-options") :] == [
        "--end-of-options",
        url,
        "refs/heads/main:refs/heads/main",
    ]


async def test_a_reference_that_starts_with_a_dash_is_not_passed_to_git(
    git: Git, git_server: GitServer, git_repository: GitRepository, tmp_path: Path
) -> None:
    with pytest.raises(Refused, match="starts with a dash, which git would read as an option"):
        await git.fetch(tmp_path, git_repository.url, [f"--upload-pack=touch {tmp_path}/owned"])
    assert git_server.requests == []
    assert not (tmp_path / "owned").exists()
