"""Pull requests of forks: what anybody can send gets nothing that is worth having, until somebody vouches for it."""

from __future__ import annotations

from typing import Any

import pytest

from kapsa.environments.names import APPROVED_COMMIT
from kapsa.environments.resources import Environment, Registry
from tests.environments.outside_world import commit_of
from tests.environments.team import Team, secret

pytestmark = pytest.mark.virtual_time

FORK = {"commitSha": commit_of("fork"), "prNumber": 7}


async def secrets_of(team: Team) -> set[str]:
    found = (await team.client.list("v1/Secret", namespace=team.place("one"))).items
    return {each["metadata"]["name"] for each in found}


async def approve(team: Team) -> None:
    patch = {"metadata": {"annotations": {APPROVED_COMMIT: commit_of("fork")}}}
    await team.client.patch(Environment, "one", patch, namespace=team.home)


async def test_a_fork_gets_neither_the_pull_secret_nor_the_environments_own_secrets(team: Team) -> None:
    await team.stage.make_namespace("kapsa-system")
    await secret(team, "login", "kapsa-system", username="robot", password="very-secret-word")
    registry = {"endpoint": "registry.example.com", "auth": {"secretRef": {"name": "login"}}}
    await team.stage.apply(Registry, "main", registry)
    team.outside.images.push(f"registry.example.com/org/app:{commit_of('fork')}")
    await team.project(
        registry={"name": "main", "imageRepository": "org/app"}, secrets=[{"name": "settings"}]
    )
    await secret(team, "settings", team.name, KEY="value")
    await secret(team, "own", team.home, KEY="value")
    await team.environment(source=FORK, config={"secretRefs": [{"name": "own"}]})
    withheld = await team.ready()
    asked = team.outside.renderer.requests[-1]
    assert (asked.env_from, asked.pull_secret) == ([], "")
    assert await secrets_of(team) == set()
    account = await team.client.get("v1/ServiceAccount", "default", namespace=team.place("one"))
    assert not account.get("imagePullSecrets")
    told = withheld.status.condition("NamespaceReady")
    assert told is not None
    assert told.reason == "SecretsWithheld"

    await approve(team)
    await team.reaches("one", "NamespaceReady", "True", "NamespaceReady")
    await team.ready()
    asked = team.outside.renderer.requests[-1]
    assert (asked.env_from, asked.pull_secret) == ([{"secretRef": {"name": "own"}}], "kapsa-registry")
    assert await secrets_of(team) == {"settings", "own", "kapsa-registry"}


@pytest.mark.parametrize(
    ("trust", "on_a_branch", "trusted"),
    [
        ("none", True, False),
        ("repository", False, False),
        ("repository", True, True),
        ("all", False, True),
    ],
)
async def test_a_project_says_which_pull_requests_it_trusts(
    team: Team, trust: str, on_a_branch: bool, trusted: bool
) -> None:
    await secret(team, "settings", team.name, KEY="value")
    previews: dict[str, Any] = {"enabled": False, "trust": trust}
    await team.project(secrets=[{"name": "settings"}], previewEnvironments=previews)
    if on_a_branch:
        team.outside.git.push("theirs", "fork")
    await team.environment(source=FORK)
    await team.ready()
    assert await secrets_of(team) == ({"settings"} if trusted else set())


async def test_an_approval_of_another_commit_is_none(team: Team) -> None:
    await secret(team, "settings", team.name, KEY="value")
    await team.project(secrets=[{"name": "settings"}])
    await team.environment(source={"commitSha": commit_of("push"), "prNumber": 7})
    await approve(team)
    await team.ready()
    await team.clock.sleep(30)
    assert await secrets_of(team) == set()
