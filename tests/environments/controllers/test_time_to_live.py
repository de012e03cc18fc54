"""The TTL of an environment, even while its project or repository is missing."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol, cast

import pytest

from kapsa.adapters.errors import Unreachable
from kapsa.environments.resources import Environment, PreviewEnvironment, Project
from kapsa.environments.sources.previews import ALLOW_MASS_DELETION
from tests.environments.fakes import commit_of
from tests.environments.previews import Preview, make_operator
from tests.environments.sandbox import Sandbox
from tests.environments.tenant import Tenant

pytestmark = pytest.mark.virtual_time

HOUR = 3600
MONTH = timedelta(days=30)


class SettableClock(Protocol):
    """A clock whose wall time can be wrong."""

    ahead: timedelta


def settable(sandbox: Sandbox) -> SettableClock:
    """Give the operators that start from now on a clock that can be set."""

    class Set(type(sandbox.clock)):  # type: ignore[misc] - the clock of either engine
        ahead = timedelta()

        def now(self) -> datetime:
            return super().now() + self.ahead  # type: ignore[no-any-return]

    clock = Set()
    sandbox.harness.clock = clock
    return cast("SettableClock", clock)


async def names(tenant: Tenant) -> set[str]:
    """Return the environments that are not being deleted."""
    listed = await tenant.client.list(Environment, namespace=tenant.home)
    return {each.name for each in listed.items if not each.metadata.deleting}


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


async def test_a_clock_that_jumps_ahead_deletes_no_environment(sandbox: Sandbox) -> None:
    tenant, clock = Tenant(sandbox), settable(sandbox)
    await tenant.start()
    await tenant.project()
    made = {"one", "two", "three", "four"}
    for name in sorted(made):
        await tenant.environment(name, ttl="24h")
    for name in sorted(made):
        await tenant.ready(name)
    clock.ahead = MONTH
    for name in sorted(made):
        touched = {"metadata": {"annotations": {"touched": "true"}}, "spec": {"config": {}}}
        await tenant.client.patch(Environment, name, touched, namespace=tenant.home)
    await sandbox.event("ClockJumped")
    await tenant.clock.sleep(5)
    assert await names(tenant) == made


async def test_a_clock_that_is_wrong_from_the_start_deletes_only_a_third_at_once_unless_allowed(
    sandbox: Sandbox,
) -> None:
    tenant, clock = Tenant(sandbox), settable(sandbox)
    await tenant.start()
    await tenant.project()
    for number in range(10):
        await tenant.environment(f"env{number}", ttl="24h")
    for number in range(10):
        await tenant.ready(f"env{number}")
    await sandbox.harness.stop()
    clock.ahead = MONTH
    await tenant.start()

    async def some_are_gone() -> bool:
        return len(await names(tenant)) == 7

    await sandbox.until(some_are_gone, "three of ten environments have expired")
    await sandbox.event("ExpiryBraked")
    await tenant.clock.sleep(5)
    assert len(await names(tenant)) == 7
    allowed = {"metadata": {"annotations": {ALLOW_MASS_DELETION: "true"}}}
    await tenant.client.patch(Project, "app", allowed, namespace=tenant.name)

    async def all_are_gone() -> bool:
        return not await names(tenant)

    await sandbox.until(all_are_gone, "all environments have expired")


async def test_a_wrong_clock_deletes_only_one_of_a_few_preview_environments(sandbox: Sandbox) -> None:
    clock = settable(sandbox)
    await sandbox.start(make_operator())
    previews = [Preview(sandbox, sandbox.number + number) for number in range(3)]
    for each in previews:
        await each.ask(ttl_seconds=86_400)
    for each in previews:
        await each.ready()
    await sandbox.harness.stop()
    clock.ahead = MONTH
    await sandbox.start(make_operator())
    await sandbox.event("ExpiryBraked")
    await sandbox.clock.sleep(5)
    listed = await sandbox.client.list(PreviewEnvironment, namespace=sandbox.namespace)
    assert len([each for each in listed.items if not each.metadata.deleting]) == 2
