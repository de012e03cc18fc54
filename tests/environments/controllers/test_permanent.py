"""Permanent environments: whose commit is somebody else's to set, and what follows from a change of the project."""

from __future__ import annotations

import pytest

from kapsa.environments.resources import Environment
from tests.environments.team import Team

pytestmark = pytest.mark.virtual_time

POLL = 340
"""Seconds in which a poll comes for sure."""


async def test_one_that_does_not_follow_keeps_its_commit_when_the_project_changes_its_type(
    team: Team,
) -> None:
    first = team.outside.git.branches["main"]
    await team.project(environments=[{"name": "production", "branch": "main"}])
    await team.ready("production")
    team.outside.git.push("main", "second")
    await team.clock.sleep(POLL)
    await team.project(environments=[{"name": "production", "branch": "main", "type": "development"}])
    await team.clock.sleep(POLL)
    found = await team.ready("production")
    assert (found.spec.type, found.spec.source.commit_sha) == ("development", first)


async def test_one_whose_branch_does_not_exist_yet_comes_with_it_and_stays_without_it(team: Team) -> None:
    await team.project(environments=[{"name": "next", "branch": "next", "autoSync": True}])
    await team.clock.sleep(POLL)
    assert await team.stage.get(Environment, "next", namespace=team.home) is None
    commit = team.outside.git.push("next")
    await team.clock.sleep(POLL)
    assert (await team.ready("next")).spec.source.commit_sha == commit
    del team.outside.git.branches["next"]
    await team.clock.sleep(4 * POLL)
    assert (await team.ready("next")).spec.source.commit_sha == commit


async def test_one_that_the_project_no_longer_names_goes(team: Team) -> None:
    await team.project(environments=[{"name": "staging", "branch": "main"}])
    await team.ready("staging")
    await team.project(environments=[])
    await team.stage.gone(Environment, "staging", namespace=team.home, seconds=120)
    assert await team.stage.get("v1/Namespace", team.place("staging"), namespace="") is None
