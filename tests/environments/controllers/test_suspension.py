"""A suspended environment: nothing runs and nothing is built, whichever step it was at."""

from __future__ import annotations

import pytest
import pytest_asyncio

from tests.environments.fakes import commit_of
from tests.environments.sandbox import Sandbox
from tests.environments.tenant import Tenant

pytestmark = pytest.mark.virtual_time

DEPLOYMENT, JOB = "apps/v1/Deployment", "batch/v1/Job"
IMAGE = "registry.example.com/org/app"
BUILT = {
    "build": {"strategy": "dockerfile"},
    "registry": {"imageRepository": IMAGE},
    "deployment": {"type": "image"},
}


@pytest_asyncio.fixture
async def tenant(sandbox: Sandbox) -> Tenant:
    made = Tenant(sandbox)
    await made.start()
    await made.project(**BUILT)
    return made


async def builds(tenant: Tenant) -> list[str]:
    jobs = await tenant.client.list(JOB, namespace=tenant.settings.build_namespace)
    return [each["metadata"]["name"] for each in jobs.items]


def push(tenant: Tenant, commit: str) -> None:
    tenant.systems.images.push(f"{IMAGE}:{commit_of(commit)}")


async def test_it_is_suspended_during_a_build_and_has_the_new_commit_when_it_resumes(
    tenant: Tenant,
) -> None:
    push(tenant, "one")
    await tenant.environment()
    await tenant.ready()
    await tenant.environment(commit="two")
    await tenant.reaches("one", "BuildReady", "False")
    await tenant.environment(commit="two", suspended=True)
    asleep = await tenant.reaches("one", "Ready", "False", "Suspended")
    assert (asleep.status.phase, asleep.status.commit_sha) == ("Pending", commit_of("one"))
    web = await tenant.client.get(DEPLOYMENT, "web", namespace=tenant.namespace_of("one"))
    assert web["spec"]["replicas"] == 0
    push(tenant, "two")
    await tenant.environment(commit="two")
    assert (await tenant.ready()).status.commit_sha == commit_of("two")


async def test_nothing_is_made_or_built_for_one_that_has_never_been_awake(tenant: Tenant) -> None:
    await tenant.environment(suspended=True)
    asleep = await tenant.reaches("one", "Ready", "False", "Suspended")
    assert asleep.status.phase == "Pending"
    assert await builds(tenant) == []
    assert await tenant.sandbox.get("v1/Namespace", tenant.namespace_of("one"), namespace="") is None
    push(tenant, "one")
    await tenant.environment()
    await tenant.ready()


async def test_a_push_to_a_suspended_environment_starts_no_build(tenant: Tenant) -> None:
    push(tenant, "one")
    await tenant.environment(suspended=False)
    await tenant.ready()
    await tenant.environment(suspended=True)
    await tenant.reaches("one", "Ready", "False", "Suspended")
    await tenant.environment(commit="two", suspended=True)
    await tenant.sandbox.at_rest()
    await tenant.reaches("one", "Ready", "False", "Suspended")
    assert await builds(tenant) == []
