"""An environment that sleeps: nothing runs for it and nothing is built, whatever it was at when it was put to sleep."""

from __future__ import annotations

import pytest
import pytest_asyncio

from tests.environments.outside_world import commit_of
from tests.environments.stage import Stage
from tests.environments.team import Team

pytestmark = pytest.mark.virtual_time

DEPLOYMENT, JOB = "apps/v1/Deployment", "batch/v1/Job"
IMAGE = "registry.example.com/org/app"
BUILT = {
    "build": {"strategy": "dockerfile"},
    "registry": {"imageRepository": IMAGE},
    "deployment": {"type": "image"},
}


@pytest_asyncio.fixture
async def team(stage: Stage) -> Team:
    made = Team(stage)
    await made.start()
    await made.project(**BUILT)
    return made


async def builds(team: Team) -> list[str]:
    found = await team.client.list(JOB, namespace=team.settings.build_namespace)
    return [each["metadata"]["name"] for each in found.items]


def push(team: Team, commit: str) -> None:
    team.outside.images.push(f"{IMAGE}:{commit_of(commit)}")


async def test_it_falls_asleep_in_the_middle_of_a_build_and_has_the_new_commit_when_it_wakes(
    team: Team,
) -> None:
    push(team, "one")
    await team.environment()
    await team.ready()
    await team.environment(commit="two")
    await team.reaches("one", "BuildReady", "False")
    await team.environment(commit="two", suspended=True)
    asleep = await team.reaches("one", "Ready", "False", "Suspended")
    assert (asleep.status.phase, asleep.status.commit_sha) == ("Pending", commit_of("one"))
    web = await team.client.get(DEPLOYMENT, "web", namespace=team.place("one"))
    assert web["spec"]["replicas"] == 0
    push(team, "two")
    await team.environment(commit="two")
    assert (await team.ready()).status.commit_sha == commit_of("two")


async def test_nothing_is_made_or_built_for_one_that_has_never_been_awake(team: Team) -> None:
    await team.environment(suspended=True)
    asleep = await team.reaches("one", "Ready", "False", "Suspended")
    assert asleep.status.phase == "Pending"
    assert await builds(team) == []
    assert await team.stage.get("v1/Namespace", team.place("one"), namespace="") is None
    push(team, "one")
    await team.environment()
    await team.ready()


async def test_a_push_to_one_that_sleeps_starts_no_build(team: Team) -> None:
    push(team, "one")
    await team.environment(suspended=False)
    await team.ready()
    await team.environment(suspended=True)
    await team.reaches("one", "Ready", "False", "Suspended")
    await team.environment(commit="two", suspended=True)
    await team.stage.at_rest()
    await team.reaches("one", "Ready", "False", "Suspended")
    assert await builds(team) == []
