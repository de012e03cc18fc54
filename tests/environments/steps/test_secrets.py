"""Copies of Secrets and ConfigMaps never meet what the operator itself keeps in an environment's namespace."""

from __future__ import annotations

import pytest

from kapsa.environments.resources import Registry
from tests.environments.team import Team

pytestmark = pytest.mark.virtual_time


async def create(team: Team, kind: str, name: str, namespace: str) -> None:
    values = {"stringData" if kind == "Secret" else "data": {"username": "a", "password": "b"}}
    metadata = {"name": name, "namespace": namespace}
    await team.client.create({"apiVersion": "v1", "kind": kind, "metadata": metadata, **values})


async def refused(team: Team, name: str) -> None:
    """The copy is refused by name, and then nothing is written any more."""
    failed = await team.reaches("one", "NamespaceReady", "False", "ObjectRefused")
    assert failed.status.failure is not None
    assert name in failed.status.failure.message
    await team.stage.at_rest()
    before = len(team.stage.writes())
    await team.clock.sleep(600)
    assert team.stage.writes()[before:] == []


async def test_a_projects_secret_called_like_the_pull_secret_is_refused(team: Team) -> None:
    login = {"secretRef": {"name": "login", "namespace": team.name}}
    await create(team, "Secret", "login", team.name)
    await create(team, "Secret", "kapsa-registry", team.name)
    await team.stage.apply(Registry, team.stage.unique, {"endpoint": "registry.example.com", "auth": login})
    registry = {"name": team.stage.unique, "imageRepository": "org/app"}
    await team.project(registry=registry, secrets=[{"name": "kapsa-registry"}])
    await team.environment()
    await refused(team, "Secret kapsa-registry")


@pytest.mark.parametrize("name", ["kapsa-tls", "kapsa-wildcard-tls"])
async def test_a_secret_called_like_a_certificate_of_ours_is_refused(team: Team, name: str) -> None:
    await create(team, "Secret", name, team.name)
    await team.project(secrets=[{"name": name}])
    await team.environment()
    await refused(team, f"Secret {name}")
    await team.project(secrets=[])
    await team.ready()


@pytest.mark.parametrize("name", ["kube-root-ca.crt", "kapsa-applyset"])
async def test_a_config_map_called_like_one_that_every_namespace_has_is_refused(
    team: Team, name: str
) -> None:
    await team.project()
    if await team.stage.get("v1/ConfigMap", name, namespace=team.home) is None:
        await create(team, "ConfigMap", name, team.home)
    await team.environment(config={"configRefs": [{"name": name}]})
    await refused(team, f"ConfigMap {name}")
