"""The times of commits, from a real git server."""

from __future__ import annotations

from datetime import UTC, timedelta

import pytest

from kapsa.adapters.errors import ExternalError
from kapsa.adapters.git.client import Git
from kapsa.adapters.git.commit_times import CommitTimes
from kapsa.adapters.testing.git_server import GitRepository, GitServer


@pytest.fixture
def times() -> CommitTimes:
    return CommitTimes(Git(protocols=["http"], timeout=60))


async def test_the_times_of_branches_and_pull_requests_are_fetched_at_once(
    times: CommitTimes, git_repository: GitRepository, git_server: GitServer
) -> None:
    old = git_repository.commit({"a.txt": "one"}, branch="old")
    git_repository.epoch += 3600
    commits = [
        old,
        git_repository.commit({"a.txt": "two"}, branch="feature"),
        git_repository.pull_request(7, {"fork.txt": "from a fork"}),
    ]
    before = len(git_server.requests)
    made = [(await times.times(git_repository.url, commits))[each] for each in commits]
    assert made[1] - made[0] == timedelta(seconds=3601)
    assert made[2] - made[1] == timedelta(seconds=1)
    assert made[0].tzinfo is UTC
    assert len(git_server.requests) - before <= 4


@pytest.mark.long
async def test_a_commit_that_the_server_lacks_is_absent_and_hides_no_other(
    times: CommitTimes, git_repository: GitRepository
) -> None:
    present = git_repository.commit({"a.txt": "one"})
    made = await times.times(git_repository.url, [present, "0" * 39 + "1", "f" * 40])
    assert made.keys() == {present}


async def test_a_time_is_fetched_once(
    times: CommitTimes, git_repository: GitRepository, git_server: GitServer
) -> None:
    commit = git_repository.commit({"a.txt": "one"})
    first = await times.times(git_repository.url, [commit])
    git_server.failures = [500] * 10
    assert await times.times(git_repository.url, [commit]) == first


async def test_a_server_that_does_not_respond_is_an_error(
    times: CommitTimes, git_repository: GitRepository, git_server: GitServer
) -> None:
    commit = git_repository.commit({"a.txt": "one"})
    git_server.failures = [500] * 10
    with pytest.raises(ExternalError):
        await times.times(git_repository.url, [commit])
