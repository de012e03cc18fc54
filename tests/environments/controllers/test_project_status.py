"""What a Project says of itself: its repository, its registry, its builds and its environments, in one place."""

from __future__ import annotations

import pytest

from kapsa.environments.resources import Project, Registry
from kapsa.runtime import Condition
from tests.environments.team import BUILD, Team, image

pytestmark = pytest.mark.virtual_time

POLL = 340
"""Seconds in which a poll comes for sure."""


async def told(team: Team, about: str) -> Condition:
    found = (await team.project_now()).status.condition(about)
    assert found is not None
    return found


async def test_the_latest_commit_is_that_of_its_own_branch(team: Team) -> None:
    first = team.outside.git.branches["main"]
    team.outside.git.push("other")
    await team.project()
    await team.clock.sleep(5)
    assert (await team.project_now()).status.latest_commit == first
    second = team.outside.git.push("main", "second")
    await team.clock.sleep(POLL)
    found = await team.project_now()
    assert found.status.latest_commit == second
    assert found.status.observed_generation == found.metadata.generation


async def test_its_environments_are_listed_with_where_they_are_reached(team: Team) -> None:
    await team.project(environments=[{"name": "staging", "branch": "main"}])
    await team.environment("mine")
    await team.ready("mine")
    await team.ready("staging")
    await team.stage.at_rest()
    listed = (await team.project_now()).status.environments
    assert [(each.name, each.type, each.ready, each.url) for each in listed] == [
        ("mine", "development", True, "https://mine.preview.catalyst.dev"),
        ("staging", "deployment", True, "https://staging.preview.catalyst.dev"),
    ]


async def test_its_registry_must_exist_and_take_its_credentials(team: Team) -> None:
    await team.project(registry={"name": "main", "imageRepository": "org/app"}, deployment={"type": "image"})
    await team.clock.sleep(5)
    assert ((await told(team, "RegistryReady")).reason, (await told(team, "Ready")).reason) == (
        "RegistryMissing",
        "RegistryMissing",
    )
    await team.stage.apply(Registry, "main", {"endpoint": "registry.example.com"})
    await team.clock.sleep(5)
    assert (await told(team, "Ready")).reason == "NotVerified"
    verified = {"status": {"verified": True}}
    await team.client.patch(Registry, "main", verified, subresource="status")
    await team.clock.sleep(5)
    assert (await told(team, "RegistryReady")).reason == "Verified"
    assert (await team.project_now()).status.is_true("Ready")


async def test_without_a_registry_nothing_is_asked_of_one(team: Team) -> None:
    await team.project()
    await team.clock.sleep(5)
    found = await told(team, "RegistryReady")
    assert (found.status, found.reason) == ("True", "NotRequested")


async def test_builds_succeed_as_long_as_none_of_its_environments_has_one_that_failed(team: Team) -> None:
    digest = team.outside.images.push(image("one"))
    await team.project(**BUILD)
    await team.environment()
    await team.ready()
    await team.stage.at_rest()
    found = await team.project_now()
    assert found.status.is_true("BuildSucceeded")
    assert found.status.latest_image == f"registry.example.com/org/app@{digest}"
    team.stage.harness.cluster.workloads.crash("kapsa-builds/*", exit_code=1)
    await team.environment("broken", commit="two")
    await team.reaches("broken", "BuildReady", "False", "BuildFailed")
    await team.stage.at_rest()
    failed = await told(team, "BuildSucceeded")
    assert (failed.status, failed.reason) == ("False", "BuildFailed")
    assert "broken" in failed.message
    assert (await team.project_now()).status.latest_image == found.status.latest_image


async def test_the_latest_image_is_that_of_the_commit_that_was_seen_last(team: Team) -> None:
    team.outside.images.push(image("one"))
    newer = team.outside.images.push(image("two"))
    await team.project(**BUILD)
    await team.environment("z-first")
    await team.ready("z-first")
    await team.clock.sleep(60)
    await team.environment("a-second", commit="two")
    await team.ready("a-second")
    await team.stage.at_rest()
    found: Project = await team.project_now()
    assert found.status.latest_image == f"registry.example.com/org/app@{newer}"
