"""Environments: created, polled, updated and deleted, as a web application does it."""

from __future__ import annotations

import pytest

from kapsa.environments.resources import Environment
from tests.environments.fakes import commit_of, deployment, service
from tests.environments.tenant import Tenant

pytestmark = pytest.mark.virtual_time


async def test_an_environment_becomes_ready_and_says_where_it_is_reached(tenant: Tenant) -> None:
    await tenant.project()
    await tenant.environment()
    ready = await tenant.ready()
    assert ready.status.phase == "Ready"
    assert ready.status.url == "https://one.preview.catalyst.dev"
    assert ready.status.namespace is not None
    assert ready.status.namespace.name == tenant.namespace_of("one")
    assert ready.status.commit_sha == commit_of("one")
    assert {each.type: each.status for each in ready.status.conditions} == {
        "NamespaceReady": "True",
        "BuildReady": "True",
        "DeploymentReady": "True",
        "IngressReady": "True",
        "TLSReady": "True",
        "Ready": "True",
    }


async def test_another_commit_is_rolled_out(tenant: Tenant) -> None:
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    await tenant.environment(commit="two")
    ready = await tenant.ready()
    assert ready.status.commit_sha == commit_of("two")
    web = await tenant.client.get("apps/v1/Deployment", "web", namespace=tenant.namespace_of("one"))
    assert web["spec"]["template"]["spec"]["containers"][0]["image"] == f"app:{commit_of('two')[:12]}"


async def test_a_deleted_environment_takes_namespace_and_host_along(tenant: Tenant) -> None:
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    await tenant.client.delete(Environment, "one", namespace=tenant.home)
    await tenant.sandbox.gone(Environment, "one", namespace=tenant.home)
    assert await tenant.sandbox.get("v1/Namespace", tenant.namespace_of("one"), namespace="") is None
    assert tenant.systems.domains.held == {}


async def test_what_is_no_longer_rendered_is_pruned(tenant: Tenant) -> None:
    await tenant.project()
    tenant.systems.renderer.objects = [
        deployment("web", "app:1"),
        deployment("extra", "app:1"),
        service("web"),
    ]
    await tenant.environment()
    await tenant.ready()
    tenant.systems.renderer.objects = [deployment("web", "app:2"), service("web")]
    await tenant.environment(commit="two")
    await tenant.sandbox.gone("apps/v1/Deployment", "extra", namespace=tenant.namespace_of("one"))
    await tenant.ready()
    assert await tenant.sandbox.get("apps/v1/Deployment", "web", namespace=tenant.namespace_of("one"))


async def test_containers_that_ask_for_nothing_leave_room_for_an_update_in_the_quota(tenant: Tenant) -> None:
    await tenant.project(resources={"defaultQuota": {"cpu": "200m", "memory": "4Gi"}})
    await tenant.environment()
    await tenant.ready()
    limits = await tenant.client.get("v1/LimitRange", "kapsa-limits", namespace=tenant.namespace_of("one"))
    (container,) = limits["spec"]["limits"]
    assert container["default"] == {"cpu": "100m", "memory": "512Mi", "ephemeral-storage": "2Gi"}
    assert container["defaultRequest"] == {"cpu": "100m", "memory": "128Mi", "ephemeral-storage": "128Mi"}
