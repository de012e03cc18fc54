"""What the API server refuses, or fails at, is said in the environment's status, where people look."""

from __future__ import annotations

from typing import Any

import pytest

from kapsa.adapters.errors import Refused
from kapsa.devcluster.faults import Answer, FaultPlan, Rule
from kapsa.environments.resources import Environment
from tests.environments.outside_world import deployment, service
from tests.environments.stage import Stage
from tests.environments.team import Team


@pytest.fixture
def team(stage: Stage) -> Team:
    return Team(stage)


async def failed(team: Team, condition: str, reason: str) -> str:
    """What the status says of a failure."""
    found = await team.reaches("one", condition, "False", reason)
    assert found.status.phase == "Failed"
    assert found.status.failure is not None
    assert found.status.failure.hint
    return found.status.failure.message


async def test_a_field_of_a_wrong_type_is_named_and_the_next_commit_that_has_it_right_is_deployed(
    team: Team,
) -> None:
    team.outside.renderer.objects = [deployment("web", "app:1", replicas="many"), service("web")]
    await team.start()
    await team.project()
    await team.environment()
    message = await failed(team, "DeploymentReady", "Rejected")
    assert "Deployment web was not accepted" in message
    assert ".spec.replicas" in message
    team.outside.renderer.objects = [deployment("web", "app:1"), service("web")]
    await team.environment(commit="two")
    await team.ready()


async def test_a_field_that_does_not_exist_is_named(team: Team) -> None:
    team.outside.renderer.objects = [deployment("web", "app:1", replicsa=2), service("web")]
    await team.start()
    await team.project()
    await team.environment()
    assert ".spec.replicsa" in await failed(team, "DeploymentReady", "Rejected")


async def test_a_quota_that_the_api_server_does_not_take_is_told(team: Team) -> None:
    await team.start()
    await team.project(resources={"defaultQuota": {"cpu": "-1"}})
    await team.environment()
    assert "ResourceQuota" in await failed(team, "NamespaceReady", "Rejected")
    await team.project(resources={"defaultQuota": {"cpu": "4"}})
    await team.ready()


@pytest.mark.virtual_time
async def test_a_right_that_the_operator_lacks_is_told_and_used_once_it_is_there(
    team: Team, faults: FaultPlan
) -> None:
    words = 'User "kapsa" cannot patch resource "networkpolicies"'
    refusal = Answer(code=403, reason="Forbidden", message=words)
    faults.add(Rule(action=refusal, verb="patch", resource="networkpolicies", times=0))
    await team.start()
    await team.project()
    await team.environment()
    assert words in await failed(team, "NamespaceReady", "Rejected")
    faults.clear()
    await team.ready()


@pytest.mark.virtual_time
async def test_a_webhook_of_the_cluster_that_fails_for_long_is_told(team: Team, faults: FaultPlan) -> None:
    failing = Answer(code=500, reason="InternalError", message="failed calling webhook policy.example.com")
    faults.add(Rule(action=failing, verb="patch", resource="services", times=0))
    await team.start()
    await team.project()
    await team.environment()

    async def told() -> bool:
        found = await team.stage.get(Environment, "one", namespace=team.home)
        condition = found.status.condition("DeploymentReady") if found is not None else None
        return condition is not None and condition.reason == "ApiServerTrouble"

    await team.stage.until(told, "the trouble is told")
    condition = (await team.get()).status.condition("DeploymentReady")
    assert condition is not None
    assert "webhook policy.example.com" in condition.message
    faults.clear()
    await team.ready(seconds=1200)


@pytest.mark.virtual_time
async def test_an_environment_that_is_ready_stays_so_when_the_api_server_stumbles(
    team: Team, faults: FaultPlan
) -> None:
    await team.start()
    await team.project()
    await team.environment()
    await team.ready()
    stumble = Answer(code=500, reason="InternalError", message="etcd has no leader")
    rule = faults.add(Rule(action=stumble, verb="patch", resource="limitranges", client="operator"))
    meddled: dict[str, Any] = {"spec": {"limits": []}}
    before = len(team.stage.writes())
    await team.client.patch("v1/LimitRange", "kapsa-limits", meddled, namespace=team.place("one"))
    await team.stage.at_rest()
    assert rule.fired == 1
    assert {each.call.resource for each in team.stage.writes()[before:]} == {"limitranges"}
    assert (await team.get()).status.is_true("Ready")


@pytest.mark.virtual_time
async def test_a_failure_is_an_event_once_and_again_when_it_comes_back(team: Team) -> None:
    team.outside.renderer.error = Refused("helm: no chart here", hint="Commit it", reason="RenderFailed")
    await team.start()
    await team.project()
    await team.environment()
    await failed(team, "DeploymentReady", "RenderFailed")
    await team.clock.sleep(600)
    assert await events(team) == [("RenderFailed", "render: helm: no chart here", 1)]
    team.outside.renderer.error = None
    await team.ready()
    team.outside.renderer.error = Refused("helm: no chart here", hint="Commit it", reason="RenderFailed")
    await team.environment(commit="two")
    await failed(team, "DeploymentReady", "RenderFailed")
    await team.clock.sleep(60)
    assert sum(count for _, _, count in await events(team)) == 2


async def events(team: Team) -> list[tuple[str, str, int]]:
    """The warnings about the environment: reason, text, and how often each was given."""
    found = (await team.client.list("events.k8s.io/v1/Event", namespace=team.home)).items
    return [
        (each["reason"], each["note"], (each.get("series") or {}).get("count", 1))
        for each in found
        if each["type"] == "Warning"
    ]
