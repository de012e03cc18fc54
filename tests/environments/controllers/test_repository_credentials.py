"""A repository's credentials: read from the team's own Secret, tried as soon as they change, seen by nobody else."""

from __future__ import annotations

from typing import Any

import pytest

from kapsa.adapters.errors import AuthFailed
from kapsa.environments.resources import Project
from tests.environments.team import REPOSITORY, Team

pytestmark = pytest.mark.virtual_time

SOURCE: dict[str, Any] = {"repositoryUrl": REPOSITORY, "credentials": {"secretRef": {"name": "login"}}}


async def login(team: Team, password: str) -> None:
    manifest = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "login", "namespace": team.name},
        "stringData": {"username": "robot", "password": password},
    }
    await team.client.apply(manifest, field_manager="person", force=True)


async def accessible(team: Team, status: str, reason: str) -> None:
    async def holds() -> bool:
        found = (await team.project_now()).status.condition("RepositoryAccessible")
        return found is not None and (found.status, found.reason) == (status, reason)

    await team.stage.until(holds, f"RepositoryAccessible is {status}, {reason}", seconds=20)


async def test_a_secret_that_comes_or_changes_is_tried_at_once(team: Team) -> None:
    await team.project(source=SOURCE)
    await accessible(team, "False", "CredentialsMissing")
    assert team.outside.git.listed == 0
    team.outside.git.error = AuthFailed("git.example.com does not take the credentials")
    await login(team, "wrong-password")
    await accessible(team, "False", "AuthFailed")
    team.outside.git.error = None
    await login(team, "right-password")
    await accessible(team, "True", "Listed")
    used = [each.password for each in team.outside.git.credentials if each is not None]
    assert used == ["wrong-password", "right-password"]
    found = await team.client.get(Project, "app", namespace=team.name)
    assert "-password" not in str(found.to_dict())
