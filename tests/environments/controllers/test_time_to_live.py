"""An environment's time to live, also while its project or its repository is not there."""

from __future__ import annotations

import pytest

from kapsa.adapters.errors import Unreachable
from kapsa.environments.resources import Environment, Project
from tests.environments.outside_world import commit_of
from tests.environments.team import Team

pytestmark = pytest.mark.virtual_time

HOUR = 3600


async def test_an_environment_whose_project_was_torn_away_goes_when_its_time_is_up(team: Team) -> None:
    await team.project()
    await team.environment(ttl="1h")
    await team.ready()
    await team.stage.harness.stop()
    await team.client.delete(Project, "app", namespace=team.name)
    await team.client.patch(Project, "app", {"metadata": {"finalizers": None}}, namespace=team.name)
    await team.start()
    await team.reaches("one", "Ready", "False", "ProjectMissing")
    await team.stage.gone(Environment, "one", namespace=team.home, seconds=2 * HOUR)
    assert await team.stage.get("v1/Namespace", team.place("one"), namespace="") is None


async def test_while_a_new_commit_cannot_be_looked_up_the_server_is_asked_now_and_then_and_nothing_goes(
    team: Team,
) -> None:
    await team.project()
    await team.environment(ttl="1h")
    await team.ready()
    team.outside.git.push("main", "two")
    team.outside.git.error = Unreachable("git.example.com does not answer")
    shortened = {"spec": {"source": {"commitSha": commit_of("two")[:9]}}}
    await team.client.patch(Environment, "one", shortened, namespace=team.home)
    await team.reaches("one", "DeploymentReady", "False", "Unreachable")
    await team.clock.sleep(2 * HOUR)
    assert team.outside.git.listed < 2 * HOUR / 20
    team.outside.git.error = None
    assert (await team.ready()).status.commit_sha == commit_of("two")
    await team.stage.gone(Environment, "one", namespace=team.home, seconds=2 * HOUR)


async def test_another_time_to_live_counts_from_the_same_commit(team: Team) -> None:
    await team.project()
    await team.environment(ttl="24h")
    await team.ready()
    await team.clock.sleep(2 * HOUR)
    await team.environment(ttl="1h")
    await team.stage.gone(Environment, "one", namespace=team.home)
