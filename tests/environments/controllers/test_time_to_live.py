"""The TTL of an environment, even while its project or repository is missing."""

from __future__ import annotations

import pytest

from kapsa.adapters.errors import Unreachable
from kapsa.environments.resources import Environment, Project
from tests.environments.fakes import commit_of
from tests.environments.tenant import Tenant

pytestmark = pytest.mark.virtual_time

HOUR = 3600


async def test_an_environment_without_its_project_still_expires(tenant: Tenant) -> None:
    await tenant.project()
    await tenant.environment(ttl="1h")
    await tenant.ready()
    await tenant.sandbox.harness.stop()
    await tenant.client.delete(Project, "app", namespace=tenant.name)
    await tenant.client.patch(Project, "app", {"metadata": {"finalizers": None}}, namespace=tenant.name)
    await tenant.start()
    await tenant.reaches("one", "Ready", "False", "ProjectMissing")
    await tenant.sandbox.gone(Environment, "one", namespace=tenant.home, seconds=2 * HOUR)
    assert await tenant.sandbox.get("v1/Namespace", tenant.namespace_of("one"), namespace="") is None


@pytest.mark.long
async def test_while_a_new_commit_cannot_be_resolved_it_is_retried_and_nothing_is_deleted(
    tenant: Tenant,
) -> None:
    await tenant.project()
    await tenant.environment(ttl="1h")
    await tenant.ready()
    tenant.systems.git.push("main", "two")
    tenant.systems.git.error = Unreachable("git.example.com does not answer")
    shortened = {"spec": {"source": {"commitSha": commit_of("two")[:9]}}}
    await tenant.client.patch(Environment, "one", shortened, namespace=tenant.home)
    await tenant.reaches("one", "DeploymentReady", "False", "Unreachable")
    await tenant.clock.sleep(2 * HOUR)
    assert tenant.systems.git.listed < 2 * HOUR / 20
    tenant.systems.git.error = None
    assert (await tenant.ready()).status.commit_sha == commit_of("two")
    await tenant.sandbox.gone(Environment, "one", namespace=tenant.home, seconds=2 * HOUR)


async def test_another_time_to_live_counts_from_the_same_commit(tenant: Tenant) -> None:
    await tenant.project()
    await tenant.environment(ttl="24h")
    await tenant.ready()
    await tenant.clock.sleep(2 * HOUR)
    await tenant.environment(ttl="1h")
    await tenant.sandbox.gone(Environment, "one", namespace=tenant.home)
