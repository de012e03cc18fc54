"""Settings take effect: each reaches the part of the operator that it configures."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from kapsa.adapters.errors import LimitExceeded, Refused
from kapsa.adapters.git.client import Git
from kapsa.adapters.git.repositories import Repositories
from kapsa.adapters.http.client import GuardedHttpClient
from kapsa.adapters.testing.git_server import GitRepository, GitServer
from kapsa.environments.operator import ExternalSystems, make_operator
from kapsa.environments.settings import Settings
from tests.environments.sandbox import Sandbox
from tests.environments.tenant import Tenant


def test_the_timeout_of_a_reconcile_is_that_of_every_controller_that_asks_others() -> None:
    operator = make_operator(Settings(reconciliation_timeout=7, max_concurrent_reconciles=3))
    timeouts = {each.name: each.reconcile_timeout for each in operator.controllers}
    del timeouts["domainpool"]  # it asks nobody but the API server
    assert timeouts == dict.fromkeys(("project", "environment", "registry", "previewenvironment"), 7)
    at_once = {each.name: each.max_concurrent_reconciles for each in operator.controllers}
    for name in ("project", "environment", "previewenvironment"):
        assert at_once[name] == 3


def git_of(settings: Settings) -> Git:
    made = ExternalSystems.of(settings, GuardedHttpClient(), address_guard=None).git
    assert isinstance(made, Git)
    return made


async def test_the_settings_about_git_are_gits(
    git_server: GitServer, git_repository: GitRepository, tmp_path: Path
) -> None:
    git_repository.commit({"a": "b"})
    cache = tmp_path / "cache"
    with pytest.raises(Refused, match="protocol 'http' is not allowed"):
        await git_of(Settings(cache_directory=cache)).ls_remote(git_repository.url)
    settings = Settings(
        cache_directory=cache,
        git_protocols=("http",),
        git_concurrency=1,
        git_timeout=30,
        git_max_bytes=1_000_000,
    )
    git = git_of(settings)
    assert (git.timeout, git.max_bytes) == (30, 1_000_000)
    await asyncio.gather(*(git.ls_remote(git_repository.url) for _ in range(3)))
    assert git_server.max_concurrent == 1


async def test_repositories_are_kept_in_the_cache_directory_and_within_its_limits(
    git_repository: GitRepository, tmp_path: Path
) -> None:
    small = git_repository.commit({"a": "b"})
    cache = tmp_path / "cache"
    settings = Settings(cache_directory=cache, git_protocols=("http",), git_max_bytes=1_000_000)
    repositories = ExternalSystems.of(settings, GuardedHttpClient(), address_guard=None).commits
    assert isinstance(repositories, Repositories)
    async with repositories.checkout(git_repository.url, small) as checkout:
        assert checkout.root.is_relative_to(cache)
    large = git_repository.commit({"large": random.Random(1).randbytes(4_000_000)})
    with pytest.raises(LimitExceeded):
        async with repositories.checkout(git_repository.url, large):
            pass


@pytest.mark.virtual_time
async def test_projects_that_say_nothing_are_polled_as_often_as_the_setting_says(sandbox: Sandbox) -> None:
    tenant = Tenant(sandbox)
    await tenant.start(Settings(default_poll_interval=1200))
    await tenant.project()
    await tenant.clock.sleep(6000)
    assert 5 <= tenant.systems.git.listed <= 7
