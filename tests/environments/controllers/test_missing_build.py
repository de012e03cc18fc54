"""Projects that build nothing: their status says so, and what to set. On both engines."""

from __future__ import annotations

from kapsa.runtime import Condition
from tests.environments.fakes import deployment, service
from tests.environments.tenant import Tenant

VALUES = {"type": "helm", "values": {"image": {"repository": "registry.example.com/org/app"}}}


async def build_succeeded(tenant: Tenant) -> Condition | None:
    return (await tenant.project_now()).status.condition("BuildSucceeded")


async def test_a_project_that_is_never_built_says_why_and_what_to_set(tenant: Tenant) -> None:
    tenant.systems.renderer.objects = [
        deployment("web", "registry.example.com/org/app:latest"),
        service("web"),
    ]
    await tenant.project(deployment=VALUES)
    await tenant.environment()
    ready = await tenant.ready()
    condition, deployed = ready.status.condition("BuildReady"), ready.status.condition("DeploymentReady")
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "NotBuilt")
    assert "set build and registry.imageRepository of the Project, such as registry.example.com/org/app" in (
        condition.message
    )
    assert deployed is not None
    assert "registry.example.com/org/app:latest is the same for every commit" in deployed.message
    project = await tenant.sandbox.until(lambda: build_succeeded(tenant), "the Project reports it")
    assert (project.status, project.reason, project.message) == ("Unknown", "NotBuilt", condition.message)


async def test_a_project_that_wants_no_build_is_not_told_to_build(tenant: Tenant) -> None:
    await tenant.project(build={"strategy": "none"})
    await tenant.environment()
    condition = (await tenant.ready()).status.condition("BuildReady")
    assert condition is not None
    assert condition.reason == "NotRequested"
    assert await build_succeeded(tenant) is None


async def test_images_with_a_version_of_their_own_are_no_reason_to_warn(tenant: Tenant) -> None:
    pinned = f"registry.example.com/org/app@sha256:{'0' * 64}"
    tenant.systems.renderer.objects = [
        deployment("web", pinned),
        deployment("db", "postgres:16"),
        service("web"),
    ]
    await tenant.project()
    await tenant.environment()
    deployed = (await tenant.ready()).status.condition("DeploymentReady")
    assert deployed is not None
    assert "same for every commit" not in deployed.message
