"""Permanent environments: commits set by people, and changes of the project."""

from __future__ import annotations

import pytest

from kapsa.environments.resources import Environment
from tests.environments.tenant import Tenant

pytestmark = pytest.mark.virtual_time

POLL = 340
"""Seconds after which a poll has happened."""


async def test_one_that_does_not_follow_keeps_its_commit_when_the_project_changes_its_type(
    tenant: Tenant,
) -> None:
    first = tenant.systems.git.branches["main"]
    await tenant.project(environments=[{"name": "production", "branch": "main"}])
    await tenant.ready("production")
    tenant.systems.git.push("main", "second")
    await tenant.clock.sleep(POLL)
    await tenant.project(environments=[{"name": "production", "branch": "main", "type": "development"}])
    await tenant.clock.sleep(POLL)
    production = await tenant.ready("production")
    assert (production.spec.type, production.spec.source.commit_sha) == ("development", first)


async def test_one_whose_branch_does_not_exist_yet_comes_with_it_and_stays_without_it(tenant: Tenant) -> None:
    await tenant.project(environments=[{"name": "next", "branch": "next", "autoSync": True}])
    await tenant.clock.sleep(POLL)
    assert await tenant.sandbox.get(Environment, "next", namespace=tenant.home) is None
    commit = tenant.systems.git.push("next")
    await tenant.clock.sleep(POLL)
    assert (await tenant.ready("next")).spec.source.commit_sha == commit
    del tenant.systems.git.branches["next"]
    await tenant.clock.sleep(4 * POLL)
    assert (await tenant.ready("next")).spec.source.commit_sha == commit


async def test_one_that_the_project_no_longer_names_goes(tenant: Tenant) -> None:
    await tenant.project(environments=[{"name": "staging", "branch": "main"}])
    await tenant.ready("staging")
    await tenant.project(environments=[])
    await tenant.sandbox.gone(Environment, "staging", namespace=tenant.home, seconds=120)
    assert await tenant.sandbox.get("v1/Namespace", tenant.namespace_of("staging"), namespace="") is None
