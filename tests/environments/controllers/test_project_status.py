"""The status of a Project: its repository, registry, builds and environments."""

from __future__ import annotations

import pytest

from kapsa.environments.resources import Project, Registry
from kapsa.runtime import Condition
from tests.environments.tenant import ALL_REPOSITORIES, BUILD, Tenant, image

pytestmark = pytest.mark.virtual_time

POLL = 340
"""Seconds after which a poll has happened."""


async def condition_of(tenant: Tenant, about: str) -> Condition:
    condition = (await tenant.project_now()).status.condition(about)
    assert condition is not None
    return condition


async def test_the_latest_commit_is_that_of_its_own_branch(tenant: Tenant) -> None:
    first = tenant.systems.git.branches["main"]
    tenant.systems.git.push("other")
    await tenant.project()
    await tenant.clock.sleep(5)
    assert (await tenant.project_now()).status.latest_commit == first
    second = tenant.systems.git.push("main", "second")
    await tenant.clock.sleep(POLL)
    project = await tenant.project_now()
    assert project.status.latest_commit == second
    assert project.status.observed_generation == project.metadata.generation


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
    assert (
        (await condition_of(tenant, "RegistryReady")).reason,
        (await condition_of(tenant, "Ready")).reason,
    ) == (
        "RegistryMissing",
        "RegistryMissing",
    )
    await tenant.sandbox.apply(
        Registry, "main", {"endpoint": "registry.example.com", "repositories": ALL_REPOSITORIES}
    )
    await tenant.clock.sleep(5)
    assert (await condition_of(tenant, "Ready")).reason == "NotVerified"
    verified = {"status": {"verified": True}}
    await tenant.client.patch(Registry, "main", verified, subresource="status")
    await tenant.clock.sleep(5)
    assert (await condition_of(tenant, "RegistryReady")).reason == "Verified"
    assert (await tenant.project_now()).status.is_true("Ready")


async def test_without_a_registry_nothing_is_asked_of_one(tenant: Tenant) -> None:
    await tenant.project()
    await tenant.clock.sleep(5)
    condition = await condition_of(tenant, "RegistryReady")
    assert (condition.status, condition.reason) == ("True", "NotRequested")


async def test_builds_succeed_as_long_as_none_of_its_environments_has_one_that_failed(tenant: Tenant) -> None:
    digest = tenant.systems.images.push(image("one"))
    await tenant.project(**BUILD)
    await tenant.environment()
    await tenant.ready()
    await tenant.sandbox.at_rest()
    project = await tenant.project_now()
    assert project.status.is_true("BuildSucceeded")
    assert project.status.latest_image == f"registry.example.com/org/app@{digest}"
    tenant.sandbox.harness.cluster.workloads.crash("kapsa-builds/*", exit_code=1)
    await tenant.environment("broken", commit="two")
    await tenant.reaches("broken", "BuildReady", "False", "BuildFailed")
    await tenant.sandbox.at_rest()
    failed = await condition_of(tenant, "BuildSucceeded")
    assert (failed.status, failed.reason) == ("False", "BuildFailed")
    assert "broken" in failed.message
    assert (await tenant.project_now()).status.latest_image == project.status.latest_image


async def test_the_latest_image_is_that_of_the_commit_that_was_seen_last(tenant: Tenant) -> None:
    tenant.systems.images.push(image("one"))
    newer = tenant.systems.images.push(image("two"))
    await tenant.project(**BUILD)
    await tenant.environment("z-first")
    await tenant.ready("z-first")
    await tenant.clock.sleep(60)
    await tenant.environment("a-second", commit="two")
    await tenant.ready("a-second")
    await tenant.sandbox.at_rest()
    project: Project = await tenant.project_now()
    assert project.status.latest_image == f"registry.example.com/org/app@{newer}"
