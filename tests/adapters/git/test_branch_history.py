"""The history of branches: fetched once for all commits that are looked for at the same time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kapsa.adapters.errors import Unreachable
from kapsa.adapters.git.client import Git
from kapsa.adapters.git.repositories import Repositories
from kapsa.adapters.testing.git_server import GitRepository


class CountingGit(Git):
    """A git client that records where it fetches to, and can lose its connection."""

    def __init__(self) -> None:
        super().__init__(protocols=["http"], timeout=20)
        self.fetched: list[Path] = []
        self.is_offline = False

    async def fetch(self, repository: Path, *arguments: Any, **options: Any) -> None:
        self.fetched.append(repository)
        await asyncio.sleep(0)
        if self.is_offline:
            raise Unreachable("the server does not answer")
        await super().fetch(repository, *arguments, **options)


@pytest.fixture
def git() -> CountingGit:
    return CountingGit()


@pytest.fixture
def repositories(tmp_path: Path, git: CountingGit) -> Repositories:
    return Repositories(tmp_path / "cache", git)


async def test_commits_that_are_looked_for_at_the_same_time_take_one_fetch(
    repositories: Repositories, git: CountingGit, git_repository: GitRepository
) -> None:
    commits = [git_repository.commit({"a": str(number)}) for number in range(4)]
    looked_for = [*commits, "0" * 40, *commits]
    results = await asyncio.gather(
        *(repositories.in_branches(git_repository.url, each) for each in looked_for)
    )
    assert results == [True, True, True, True, False, True, True, True, True]
    assert len(git.fetched) == 1
    assert await repositories.in_branches(git_repository.url, commits[0])
    assert len(git.fetched) == 1, "what is known is not fetched again"


async def test_a_fetch_that_fails_fails_once_for_all_and_is_tried_again_later(
    repositories: Repositories, git: CountingGit, git_repository: GitRepository
) -> None:
    commits = [git_repository.commit({"a": str(number)}) for number in range(3)]
    git.is_offline = True
    failures = await asyncio.gather(
        *(repositories.in_branches(git_repository.url, each) for each in commits), return_exceptions=True
    )
    assert [type(each) for each in failures] == [Unreachable] * 3
    assert len(git.fetched) == 1
    git.is_offline = False
    assert await repositories.in_branches(git_repository.url, commits[0])


async def test_a_caller_that_is_cancelled_does_not_end_the_fetch_for_the_others(
    repositories: Repositories, git_repository: GitRepository
) -> None:
    commit = git_repository.commit({"a": "1"})
    first, second = (
        asyncio.create_task(repositories.in_branches(git_repository.url, commit)) for _ in range(2)
    )
    await asyncio.sleep(0)
    first.cancel()
    assert await second


async def test_the_history_is_fetched_to_the_directory_of_the_process_which_its_successor_removes(
    repositories: Repositories, git: CountingGit, git_repository: GitRepository, tmp_path: Path
) -> None:
    await repositories.in_branches(git_repository.url, git_repository.commit({"a": "1"}))
    (fetched,) = git.fetched
    assert fetched.is_relative_to((tmp_path / "cache" / "checkouts").resolve())
    assert not fetched.exists()
