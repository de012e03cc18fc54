"""Environments: created, polled by their status, updated and deleted, as the web application does it."""

from __future__ import annotations

import pytest

from kapsa.environments.resources import Environment
from tests.environments.outside_world import commit_of, deployment, service
from tests.environments.team import Team

pytestmark = pytest.mark.virtual_time


async def test_an_environment_becomes_ready_and_says_where_it_is_reached(team: Team) -> None:
    await team.project()
    await team.environment()
    ready = await team.ready()
    assert ready.status.phase == "Ready"
    assert ready.status.url == "https://one.preview.catalyst.dev"
    assert ready.status.namespace is not None
    assert ready.status.namespace.name == team.place("one")
    assert ready.status.commit_sha == commit_of("one")
    assert {each.type: each.status for each in ready.status.conditions} == {
        "NamespaceReady": "True",
        "BuildReady": "True",
        "DeploymentReady": "True",
        "IngressReady": "True",
        "TLSReady": "True",
        "Ready": "True",
    }


async def test_another_commit_is_rolled_out(team: Team) -> None:
    await team.project()
    await team.environment()
    await team.ready()
    await team.environment(commit="two")
    ready = await team.ready()
    assert ready.status.commit_sha == commit_of("two")
    web = await team.client.get("apps/v1/Deployment", "web", namespace=team.place("one"))
    assert web["spec"]["template"]["spec"]["containers"][0]["image"] == f"app:{commit_of('two')[:12]}"


async def test_a_deleted_environment_takes_namespace_and_host_along(team: Team) -> None:
    await team.project()
    await team.environment()
    await team.ready()
    await team.client.delete(Environment, "one", namespace=team.home)
    await team.stage.gone(Environment, "one", namespace=team.home)
    assert await team.stage.get("v1/Namespace", team.place("one"), namespace="") is None
    assert team.outside.domains.held == {}


async def test_what_is_no_longer_rendered_is_pruned(team: Team) -> None:
    await team.project()
    team.outside.renderer.objects = [deployment("web", "app:1"), deployment("extra", "app:1"), service("web")]
    await team.environment()
    await team.ready()
    team.outside.renderer.objects = [deployment("web", "app:2"), service("web")]
    await team.environment(commit="two")
    await team.stage.gone("apps/v1/Deployment", "extra", namespace=team.place("one"))
    await team.ready()
    assert await team.stage.get("apps/v1/Deployment", "web", namespace=team.place("one"))


async def test_containers_that_ask_for_nothing_leave_room_for_an_update_in_the_quota(team: Team) -> None:
    await team.project(resources={"defaultQuota": {"cpu": "200m", "memory": "4Gi"}})
    await team.environment()
    await team.ready()
    limits = await team.client.get("v1/LimitRange", "kapsa-limits", namespace=team.place("one"))
    (container,) = limits["spec"]["limits"]
    assert container["default"] == {"cpu": "100m", "memory": "512Mi"}
    assert container["defaultRequest"] == {"cpu": "100m", "memory": "128Mi"}
