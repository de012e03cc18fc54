"""Copies of Secrets and ConfigMaps never collide with the operator's own objects."""

from __future__ import annotations

import pytest

from kapsa.environments.resources import Registry
from tests.environments.tenant import Tenant

pytestmark = pytest.mark.virtual_time


async def create(tenant: Tenant, kind: str, name: str, namespace: str) -> None:
    values = {"stringData" if kind == "Secret" else "data": {"username": "a", "password": "b"}}
    metadata = {"name": name, "namespace": namespace}
    await tenant.client.create({"apiVersion": "v1", "kind": kind, "metadata": metadata, **values})


async def refused(tenant: Tenant, name: str) -> None:
    """Check that the copy is refused by name, and that nothing more is written."""
    failed = await tenant.reaches("one", "NamespaceReady", "False", "ObjectRefused")
    assert failed.status.failure is not None
    assert name in failed.status.failure.message
    await tenant.sandbox.at_rest()
    before = len(tenant.sandbox.writes())
    await tenant.clock.sleep(600)
    assert tenant.sandbox.writes()[before:] == []


async def test_a_projects_secret_called_like_the_pull_secret_is_refused(tenant: Tenant) -> None:
    login = {"secretRef": {"name": "login", "namespace": tenant.name}}
    await create(tenant, "Secret", "login", tenant.name)
    await create(tenant, "Secret", "kapsa-registry", tenant.name)
    spec = {
        "endpoint": "registry.example.com",
        "imagePullSecret": login,
        "repositories": [{"prefixes": ["*"]}],
    }
    await tenant.sandbox.apply(Registry, tenant.sandbox.unique, spec)
    registry = {"name": tenant.sandbox.unique, "imageRepository": "org/app"}
    await tenant.project(registry=registry, secrets=[{"name": "kapsa-registry"}])
    await tenant.environment()
    await refused(tenant, "Secret kapsa-registry")


async def test_a_secret_called_like_a_certificate_of_ours_is_refused(tenant: Tenant) -> None:
    name = "kapsa-tls"
    await create(tenant, "Secret", name, tenant.name)
    await tenant.project(secrets=[{"name": name}])
    await tenant.environment()
    await refused(tenant, f"Secret {name}")
    await tenant.project(secrets=[])
    await tenant.ready()


@pytest.mark.parametrize("name", ["kube-root-ca.crt", "kapsa-applyset"])
async def test_a_config_map_called_like_one_that_every_namespace_has_is_refused(
    tenant: Tenant, name: str
) -> None:
    await tenant.project()
    if await tenant.sandbox.get("v1/ConfigMap", name, namespace=tenant.home) is None:
        await create(tenant, "ConfigMap", name, tenant.home)
    await tenant.environment(config={"configRefs": [{"name": name}]})
    await refused(tenant, f"ConfigMap {name}")
