"""Where it is asked for, an environment is ready once its host answers; then nobody asks any more."""

from __future__ import annotations

import pytest

from kapsa.adapters.errors import Unreachable
from kapsa.environments.resources import Environment
from kapsa.environments.settings import Settings
from tests.environments.stage import Stage
from tests.environments.team import Team

pytestmark = pytest.mark.virtual_time


async def touched(team: Team, value: str) -> None:
    """A reconcile for no reason."""
    patch = {"metadata": {"annotations": {"example.com/touched": value}}}
    await team.client.patch(Environment, "one", patch, namespace=team.home)
    await team.stage.at_rest()


async def test_a_host_that_has_answered_is_not_asked_again_and_another_one_is(stage: Stage) -> None:
    team = Team(stage)
    await team.start(Settings(verify_routes=True))
    await team.project()
    await team.environment()
    ready = await team.ready()
    found = ready.status.condition("IngressReady")
    assert found is not None
    assert found.reason == "Reachable"
    assert team.outside.prober.asked == [ready.status.url]
    await touched(team, "1")
    assert team.outside.prober.asked == [ready.status.url]
    await team.environment(ingress={"host": "other.preview.catalyst.dev"})
    await team.ready()
    assert team.outside.prober.asked == [ready.status.url, "https://other.preview.catalyst.dev"]


async def test_a_host_that_does_not_answer_is_asked_again_until_it_does(stage: Stage) -> None:
    team = Team(stage)
    team.outside.prober.error = Unreachable("connection refused")
    await team.start(Settings(verify_routes=True))
    await team.project()
    await team.environment()
    waiting = await team.reaches("one", "IngressReady", "False", "Unreachable")
    assert waiting.status.phase == "Deploying"
    assert waiting.status.failure is None
    condition = waiting.status.condition("IngressReady")
    assert condition is not None
    assert "connection refused" in condition.message
    team.outside.prober.error = None
    await team.ready()


async def test_no_host_is_asked_unless_the_setting_says_so(stage: Stage) -> None:
    team = Team(stage)
    await team.start()
    await team.project()
    await team.environment()
    await team.ready()
    assert team.outside.prober.asked == []
