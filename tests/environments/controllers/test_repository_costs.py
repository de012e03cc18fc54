"""Repositories are asked no more than is needed, and what came of it is counted."""

from __future__ import annotations

import pytest

from kapsa.adapters.errors import AuthFailed
from kapsa.environments.resources import Environment
from tests.environments.fakes import commit_of
from tests.environments.tenant import Tenant

pytestmark = pytest.mark.virtual_time


async def touched(tenant: Tenant, times: int) -> None:
    """Reconciles for no reason."""
    for number in range(times):
        patch = {"metadata": {"annotations": {"example.com/touched": str(number)}}}
        await tenant.client.patch(Environment, "one", patch, namespace=tenant.home)
        await tenant.clock.sleep(5)


async def test_a_commit_that_no_listing_shows_is_looked_for_once(tenant: Tenant) -> None:
    """Whether it may see secrets depends on what the repository shows."""
    await tenant.project()
    await tenant.environment(source={"commitSha": commit_of("fork"), "prNumber": 7})
    await tenant.ready()
    asked = tenant.outside.git.listed
    await touched(tenant, 5)
    assert tenant.outside.git.listed == asked


async def test_a_shortened_commit_is_completed_once(tenant: Tenant) -> None:
    await tenant.project()
    whole = tenant.outside.git.push("login")
    await tenant.environment(source={"commitSha": f"{whole[:10]}..."})
    assert (await tenant.ready()).status.commit_sha == whole
    asked = tenant.outside.git.listed
    await touched(tenant, 5)
    assert tenant.outside.git.listed == asked
    tenant.outside.git.push("login", "later")
    await touched(tenant, 1)
    assert (await tenant.ready()).status.commit_sha == whole


async def test_polls_are_counted_by_what_came_of_them(tenant: Tenant) -> None:
    tenant.outside.git.error = AuthFailed("git.example.com does not take the credentials")
    await tenant.project()
    await tenant.clock.sleep(5)
    told = tenant.sandbox.metrics()
    assert told['kapsa_git_poll_total{result="AuthFailed"}'] == 1
    assert told['kapsa_git_poll_total{result="success"}'] == 0
    tenant.outside.git.error = None
    await tenant.clock.sleep(60)
    assert tenant.sandbox.metrics()['kapsa_git_poll_total{result="success"}'] == 1
