"""Repositories are asked no more than is needed, and what came of it is counted."""

from __future__ import annotations

import pytest

from kapsa.adapters.errors import AuthFailed
from kapsa.environments.resources import Environment
from tests.environments.outside_world import commit_of
from tests.environments.team import Team

pytestmark = pytest.mark.virtual_time


async def touched(team: Team, times: int) -> None:
    """Reconciles for no reason."""
    for number in range(times):
        patch = {"metadata": {"annotations": {"example.com/touched": str(number)}}}
        await team.client.patch(Environment, "one", patch, namespace=team.home)
        await team.clock.sleep(5)


async def test_a_commit_that_no_listing_shows_is_looked_for_once(team: Team) -> None:
    """Whether it may see secrets depends on what the repository shows."""
    await team.project()
    await team.environment(source={"commitSha": commit_of("fork"), "prNumber": 7})
    await team.ready()
    asked = team.outside.git.listed
    await touched(team, 5)
    assert team.outside.git.listed == asked


async def test_a_shortened_commit_is_completed_once(team: Team) -> None:
    await team.project()
    whole = team.outside.git.push("login")
    await team.environment(source={"commitSha": f"{whole[:10]}..."})
    assert (await team.ready()).status.commit_sha == whole
    asked = team.outside.git.listed
    await touched(team, 5)
    assert team.outside.git.listed == asked
    team.outside.git.push("login", "later")
    await touched(team, 1)
    assert (await team.ready()).status.commit_sha == whole


async def test_polls_are_counted_by_what_came_of_them(team: Team) -> None:
    team.outside.git.error = AuthFailed("git.example.com does not take the credentials")
    await team.project()
    await team.clock.sleep(5)
    told = team.stage.metrics()
    assert told['kapsa_git_poll_total{result="AuthFailed"}'] == 1
    assert told['kapsa_git_poll_total{result="success"}'] == 0
    team.outside.git.error = None
    await team.clock.sleep(60)
    assert team.stage.metrics()['kapsa_git_poll_total{result="success"}'] == 1
