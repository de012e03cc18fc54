"""What a Project says of itself: its repository, its registry, its builds and its environments, in one place."""

from __future__ import annotations

import pytest

from kapsa.environments.resources import Project, Registry
from kapsa.runtime import Condition
from tests.environments.tenant import BUILD, Tenant, image

pytestmark = pytest.mark.virtual_time

POLL = 340
"""Seconds in which a poll comes for sure."""


async def told(tenant: Tenant, about: str) -> Condition:
    found = (await tenant.project_now()).status.condition(about)
    assert found is not None
    return found


async def test_the_latest_commit_is_that_of_its_own_branch(tenant: Tenant) -> None:
    first = tenant.outside.git.branches["main"]
    tenant.outside.git.push("other")
    await tenant.project()
    await tenant.clock.sleep(5)
    assert (await tenant.project_now()).status.latest_commit == first
    second = tenant.outside.git.push("main", "second")
    await tenant.clock.sleep(POLL)
    found = await tenant.project_now()
    assert found.status.latest_commit == second
    assert found.status.observed_generation == found.metadata.generation


async def test_its_environments_are_listed_with_where_they_are_reached(tenant: Tenant) -> None:
    await tenant.project(environments=[{"name": "staging", "branch": "main"}])
    await tenant.environment("mine")
    await tenant.ready("mine")
    await tenant.ready("staging")
    await tenant.sandbox.at_rest()
    listed = (await tenant.project_now()).status.environments
    assert [(each.name, each.type, each.ready, each.url) for each in listed] == [
        ("mine", "development", True, "https://mine.preview.catalyst.dev"),
        ("staging", "deployment", True, "https://staging.preview.catalyst.dev"),
    ]


async def test_its_registry_must_exist_and_take_its_credentials(tenant: Tenant) -> None:
    await tenant.project(
        registry={"name": "main", "imageRepository": "org/app"}, deployment={"type": "image"}
    )
    await tenant.clock.sleep(5)
    assert ((await told(tenant, "RegistryReady")).reason, (await told(tenant, "Ready")).reason) == (
        "RegistryMissing",
        "RegistryMissing",
    )
    await tenant.sandbox.apply(Registry, "main", {"endpoint": "registry.example.com"})
    await tenant.clock.sleep(5)
    assert (await told(tenant, "Ready")).reason == "NotVerified"
    verified = {"status": {"verified": True}}
    await tenant.client.patch(Registry, "main", verified, subresource="status")
    await tenant.clock.sleep(5)
    assert (await told(tenant, "RegistryReady")).reason == "Verified"
    assert (await tenant.project_now()).status.is_true("Ready")


async def test_without_a_registry_nothing_is_asked_of_one(tenant: Tenant) -> None:
    await tenant.project()
    await tenant.clock.sleep(5)
    found = await told(tenant, "RegistryReady")
    assert (found.status, found.reason) == ("True", "NotRequested")


async def test_builds_succeed_as_long_as_none_of_its_environments_has_one_that_failed(tenant: Tenant) -> None:
    digest = tenant.outside.images.push(image("one"))
    await tenant.project(**BUILD)
    await tenant.environment()
    await tenant.ready()
    await tenant.sandbox.at_rest()
    found = await tenant.project_now()
    assert found.status.is_true("BuildSucceeded")
    assert found.status.latest_image == f"registry.example.com/org/app@{digest}"
    tenant.sandbox.harness.cluster.workloads.crash("kapsa-builds/*", exit_code=1)
    await tenant.environment("broken", commit="two")
    await tenant.reaches("broken", "BuildReady", "False", "BuildFailed")
    await tenant.sandbox.at_rest()
    failed = await told(tenant, "BuildSucceeded")
    assert (failed.status, failed.reason) == ("False", "BuildFailed")
    assert "broken" in failed.message
    assert (await tenant.project_now()).status.latest_image == found.status.latest_image


async def test_the_latest_image_is_that_of_the_commit_that_was_seen_last(tenant: Tenant) -> None:
    tenant.outside.images.push(image("one"))
    newer = tenant.outside.images.push(image("two"))
    await tenant.project(**BUILD)
    await tenant.environment("z-first")
    await tenant.ready("z-first")
    await tenant.clock.sleep(60)
    await tenant.environment("a-second", commit="two")
    await tenant.ready("a-second")
    await tenant.sandbox.at_rest()
    found: Project = await tenant.project_now()
    assert found.status.latest_image == f"registry.example.com/org/app@{newer}"
