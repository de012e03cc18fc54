"""Repositories are listed no more than needed, and polls are counted by result."""

from __future__ import annotations

import pytest

from kapsa.adapters.errors import AuthFailed
from kapsa.environments.resources import Environment
from tests.environments.fakes import commit_of
from tests.environments.tenant import Tenant

pytestmark = pytest.mark.virtual_time


async def touched(tenant: Tenant, times: int) -> None:
    """Trigger reconciles without a change."""
    for number in range(times):
        patch = {"metadata": {"annotations": {"example.com/touched": str(number)}}}
        await tenant.client.patch(Environment, "one", patch, namespace=tenant.home)
        await tenant.clock.sleep(5)


async def test_a_commit_that_no_listing_shows_is_looked_for_once(tenant: Tenant) -> None:
    """Create an environment whose trust depends on the branches of the repository."""
    await tenant.project()
    await tenant.environment(source={"commitSha": commit_of("fork"), "prNumber": 7})
    await tenant.reaches("one", "Ready", "False", "ApprovalRequired")
    asked = tenant.systems.git.listed
    await touched(tenant, 5)
    assert tenant.systems.git.listed == asked


async def test_a_shortened_commit_is_completed_once(tenant: Tenant) -> None:
    await tenant.project()
    whole = tenant.systems.git.push("login")
    await tenant.environment(source={"commitSha": f"{whole[:10]}..."})
    assert (await tenant.ready()).status.commit_sha == whole
    asked = tenant.systems.git.listed
    await touched(tenant, 5)
    assert tenant.systems.git.listed == asked
    tenant.systems.git.push("login", "later")
    await touched(tenant, 1)
    assert (await tenant.ready()).status.commit_sha == whole


async def test_polls_are_counted_by_what_came_of_them(tenant: Tenant) -> None:
    tenant.systems.git.error = AuthFailed("git.example.com does not take the credentials")
    await tenant.project()
    await tenant.clock.sleep(5)
    metrics = tenant.sandbox.metrics()
    assert metrics['kapsa_git_poll_total{result="AuthFailed"}'] == 1
    assert metrics['kapsa_git_poll_total{result="success"}'] == 0
    tenant.systems.git.error = None
    await tenant.clock.sleep(60)
    assert tenant.sandbox.metrics()['kapsa_git_poll_total{result="success"}'] == 1
