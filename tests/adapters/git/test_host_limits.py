"""A git server is asked by a few at a time, and left alone once it says that it is asked too much."""

from __future__ import annotations

import asyncio

import pytest

from kapsa.adapters.errors import Unreachable
from kapsa.adapters.git._host_limits import RATE_LIMITED, HostLimits
from kapsa.adapters.git.client import Git
from kapsa.adapters.git.credentials import GitCredentials
from kapsa.adapters.testing.git_server import GitRepository, GitServer

TOKEN = GitCredentials(username="git", password="a-token")


class Time:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


async def refused(hosts: HostLimits, reason: str = RATE_LIMITED) -> float | None:
    """A request that a server does not answer; returns how long it is left alone."""
    with pytest.raises(Unreachable) as caught:
        async with hosts.asking("git.example.com", None):
            raise Unreachable("not now", reason=reason)
    return caught.value.retry_after


async def is_asked(
    hosts: HostLimits, host: str = "git.example.com", credentials: GitCredentials | None = None
) -> bool:
    try:
        async with hosts.asking(host, credentials):
            return True
    except Unreachable:
        return False


async def test_a_server_that_is_asked_too_much_is_not_even_asked_for_a_while(
    git_server: GitServer, git_repository: GitRepository
) -> None:
    git = Git(protocols=["http"], timeout=20)
    git_server.failures = [429]
    with pytest.raises(Unreachable) as error:
        await git.ls_remote(git_repository.url)
    assert (error.value.reason, error.value.retry_after) == ("RateLimited", 60)
    asked = len(git_server.requests)
    with pytest.raises(Unreachable, match=r"is left alone for [56]\d s") as again:
        await git.ls_remote(git_repository.url)
    assert again.value.retryable
    assert len(git_server.requests) == asked
    await git.ls_remote(git_repository.url, TOKEN)  # who logs in is counted on its own


async def test_it_is_left_alone_for_longer_each_time_until_it_answers() -> None:
    now = Time()
    hosts = HostLimits(4, now=now)
    waits = []
    for _ in range(6):
        wait = await refused(hosts)
        assert wait is not None
        waits.append(wait)
        assert not await is_asked(hosts)
        now.seconds += wait
    assert waits == [60, 120, 240, 480, 960, 960]
    assert await is_asked(hosts)
    assert await refused(hosts) == 60


async def test_other_servers_and_other_logins_are_asked_meanwhile() -> None:
    hosts = HostLimits(4, now=Time())
    await refused(hosts)
    assert not await is_asked(hosts)
    assert await is_asked(hosts, "other.example.com")
    assert await is_asked(hosts, credentials=TOKEN)


async def test_other_trouble_is_no_reason_to_leave_a_server_alone() -> None:
    """One tenant's broken repository would keep all others from theirs."""
    hosts = HostLimits(4, now=Time())
    assert await refused(hosts, "Unreachable") is None
    assert await is_asked(hosts)


async def test_a_server_with_too_many_requests_keeps_nobody_from_another() -> None:
    hosts = HostLimits(1)
    async with hosts.asking("slow.example.com", None), asyncio.timeout(1):
        assert await is_asked(hosts, "other.example.com")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05), hosts.asking("slow.example.com", None):
                pass
