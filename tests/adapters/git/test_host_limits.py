"""Requests to a git server are limited, and paused after the server limits their rate."""

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


async def failing_request(hosts: HostLimits, reason: str = RATE_LIMITED) -> float | None:
    """Make a request that fails. Return the length of the back-off."""
    with pytest.raises(Unreachable) as caught:
        async with hosts.request("git.example.com", None):
            raise Unreachable("not now", reason=reason)
    return caught.value.retry_after


async def is_allowed(
    hosts: HostLimits, host: str = "git.example.com", credentials: GitCredentials | None = None
) -> bool:
    try:
        async with hosts.request(host, credentials):
            return True
    except Unreachable:
        return False


async def test_no_request_is_sent_during_a_back_off(
    git_server: GitServer, git_repository: GitRepository
) -> None:
    git = Git(protocols=["http"], timeout=20)
    git_server.failures = [429]
    with pytest.raises(Unreachable) as error:
        await git.ls_remote(git_repository.url)
    assert (error.value.reason, error.value.retry_after) == ("RateLimited", 60)
    received = len(git_server.requests)
    with pytest.raises(Unreachable, match=r"the next one is sent in [56]\d s") as again:
        await git.ls_remote(git_repository.url)
    assert again.value.retryable
    assert len(git_server.requests) == received
    await git.ls_remote(git_repository.url, TOKEN)  # requests with a login have their own back-off


async def test_the_back_off_doubles_until_a_request_succeeds() -> None:
    now = Time()
    hosts = HostLimits(4, now=now)
    waits = []
    for _ in range(6):
        wait = await failing_request(hosts)
        assert wait is not None
        waits.append(wait)
        assert not await is_allowed(hosts)
        now.seconds += wait
    assert waits == [60, 120, 240, 480, 960, 960]
    assert await is_allowed(hosts)
    assert await failing_request(hosts) == 60


async def test_a_back_off_does_not_affect_other_servers_and_logins() -> None:
    hosts = HostLimits(4, now=Time())
    await failing_request(hosts)
    assert not await is_allowed(hosts)
    assert await is_allowed(hosts, "other.example.com")
    assert await is_allowed(hosts, credentials=TOKEN)


async def test_other_errors_start_no_back_off() -> None:
    """Otherwise one tenant's broken repository would block all other tenants."""
    hosts = HostLimits(4, now=Time())
    assert await failing_request(hosts, "Unreachable") is None
    assert await is_allowed(hosts)


async def test_a_host_at_its_limit_does_not_block_another() -> None:
    hosts = HostLimits(1)
    async with hosts.request("slow.example.com", None), asyncio.timeout(1):
        assert await is_allowed(hosts, "other.example.com")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05), hosts.request("slow.example.com", None):
                pass
