"""Pull requests of forks: they get no secrets and no build until their commit is approved."""

from __future__ import annotations

from typing import Any

import pytest

from kapsa.environments.names import APPROVED_COMMIT
from kapsa.environments.resources import Environment, Registry
from tests.environments.fakes import commit_of
from tests.environments.tenant import Tenant, secret

pytestmark = pytest.mark.virtual_time

FORK = {"commitSha": commit_of("fork"), "prNumber": 7}


async def secrets_of(tenant: Tenant) -> set[str]:
    secrets = (await tenant.client.list("v1/Secret", namespace=tenant.namespace_of("one"))).items
    return {each["metadata"]["name"] for each in secrets}


async def approve(tenant: Tenant) -> None:
    patch = {"metadata": {"annotations": {APPROVED_COMMIT: commit_of("fork")}}}
    await tenant.client.patch(Environment, "one", patch, namespace=tenant.home)


async def test_a_fork_gets_neither_the_pull_secret_nor_the_environments_own_secrets(tenant: Tenant) -> None:
    await tenant.sandbox.make_namespace("kapsa-system")
    await secret(tenant, "login", "kapsa-system", username="robot", password="very-secret-word")
    registry = {"endpoint": "registry.example.com", "auth": {"secretRef": {"name": "login"}}}
    await tenant.sandbox.apply(Registry, "main", registry)
    tenant.systems.images.push(f"registry.example.com/org/app:{commit_of('fork')}")
    await tenant.project(
        registry={"name": "main", "imageRepository": "org/app"}, secrets=[{"name": "settings"}]
    )
    await secret(tenant, "settings", tenant.name, KEY="value")
    await secret(tenant, "own", tenant.home, KEY="value")
    await tenant.environment(source=FORK, config={"secretRefs": [{"name": "own"}]})
    withheld = await tenant.ready()
    asked = tenant.systems.renderer.requests[-1]
    assert (asked.env_from, asked.pull_secret) == ([], "")
    assert await secrets_of(tenant) == set()
    account = await tenant.client.get("v1/ServiceAccount", "default", namespace=tenant.namespace_of("one"))
    assert not account.get("imagePullSecrets")
    condition = withheld.status.condition("NamespaceReady")
    assert condition is not None
    assert condition.reason == "SecretsWithheld"

    await approve(tenant)
    await tenant.reaches("one", "NamespaceReady", "True", "NamespaceReady")
    await tenant.ready()
    asked = tenant.systems.renderer.requests[-1]
    assert (asked.env_from, asked.pull_secret) == ([{"secretRef": {"name": "own"}}], "kapsa-registry")
    assert await secrets_of(tenant) == {"settings", "own", "kapsa-registry"}


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
    tenant: Tenant, trust: str, on_a_branch: bool, trusted: bool
) -> None:
    await secret(tenant, "settings", tenant.name, KEY="value")
    previews: dict[str, Any] = {"enabled": False, "trust": trust}
    await tenant.project(secrets=[{"name": "settings"}], previewEnvironments=previews)
    if on_a_branch:
        tenant.systems.git.push("theirs", "fork")
    await tenant.environment(source=FORK)
    await tenant.ready()
    assert await secrets_of(tenant) == ({"settings"} if trusted else set())


async def test_an_approval_of_another_commit_is_none(tenant: Tenant) -> None:
    await secret(tenant, "settings", tenant.name, KEY="value")
    await tenant.project(secrets=[{"name": "settings"}])
    await tenant.environment(source={"commitSha": commit_of("push"), "prNumber": 7})
    await approve(tenant)
    await tenant.ready()
    await tenant.clock.sleep(30)
    assert await secrets_of(tenant) == set()
