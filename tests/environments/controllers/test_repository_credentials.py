"""A repository's credentials: read from the tenant's own Secret, tried when they change, never exposed."""

from __future__ import annotations

from typing import Any

import pytest

from kapsa.adapters.errors import AuthFailed
from kapsa.environments.resources import Project
from tests.environments.tenant import REPOSITORY, Tenant

pytestmark = pytest.mark.virtual_time

SOURCE: dict[str, Any] = {"repositoryUrl": REPOSITORY, "credentials": {"secretRef": {"name": "login"}}}


async def login(tenant: Tenant, password: str) -> None:
    manifest = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "login", "namespace": tenant.name},
        "stringData": {"username": "robot", "password": password},
    }
    await tenant.client.apply(manifest, field_manager="person", force=True)


async def accessible(tenant: Tenant, status: str, reason: str) -> None:
    async def holds() -> bool:
        condition = (await tenant.project_now()).status.condition("RepositoryAccessible")
        return condition is not None and (condition.status, condition.reason) == (status, reason)

    await tenant.sandbox.until(holds, f"RepositoryAccessible is {status}, {reason}", seconds=20)


async def test_a_secret_that_comes_or_changes_is_tried_at_once(tenant: Tenant) -> None:
    await tenant.project(source=SOURCE)
    await accessible(tenant, "False", "CredentialsMissing")
    assert tenant.systems.git.listed == 0
    tenant.systems.git.error = AuthFailed("git.example.com does not take the credentials")
    await login(tenant, "wrong-password")
    await accessible(tenant, "False", "AuthFailed")
    tenant.systems.git.error = None
    await login(tenant, "right-password")
    await accessible(tenant, "True", "Listed")
    used = [each.password for each in tenant.systems.git.credentials if each is not None]
    assert used == ["wrong-password", "right-password"]
    project = await tenant.client.get(Project, "app", namespace=tenant.name)
    assert "-password" not in str(project.to_dict())
