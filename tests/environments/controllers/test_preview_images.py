"""The images of PreviewEnvironments: the rules of Registries hold for them as for Environments."""

from __future__ import annotations

from typing import Any

from kapsa.environments.controllers.preview_environment import DEPLOYMENT
from kapsa.environments.resources import PreviewEnvironment, Registry
from tests.environments.previews import Preview, make_operator
from tests.environments.sandbox import Sandbox


def host(sandbox: Sandbox) -> str:
    return f"registry-{sandbox.unique}.example.com"


async def registry(sandbox: Sandbox, **more: Any) -> None:
    """Create a Registry with credentials, in which each namespace has the repositories under its name."""
    auth = {"secretRef": {"name": "push", "namespace": sandbox.namespace}}
    await sandbox.apply(Registry, sandbox.unique, {"endpoint": host(sandbox), "auth": auth, **more})


async def test_a_preview_cannot_run_the_private_image_of_another_team(sandbox: Sandbox) -> None:
    await registry(sandbox)
    await sandbox.start(make_operator())
    preview = Preview(sandbox)
    await preview.ask(image=f"{host(sandbox)}/victim/app")
    refused = await sandbox.condition(PreviewEnvironment, preview.name, "False", reason="RegistryNotAllowed")
    assert refused.status.phase == "Failed"
    assert "repository victim/app" in refused.status.condition("Ready").message
    assert await preview.child(DEPLOYMENT, "app") is None, "nothing of it runs"


async def test_a_preview_cannot_run_an_image_by_its_id(sandbox: Sandbox) -> None:
    await registry(sandbox)
    await sandbox.start(make_operator())
    preview = Preview(sandbox)
    await preview.ask(image="sha256", image_tag="0" * 64)
    refused = await sandbox.condition(PreviewEnvironment, preview.name, "False", reason="RegistryNotAllowed")
    assert "is the ID of an image" in refused.status.condition("Ready").message
    assert await preview.child(DEPLOYMENT, "app") is None, "nothing of it runs"


async def test_a_preview_runs_an_image_of_its_own_team_once_the_registry_has_it_for_the_team(
    sandbox: Sandbox,
) -> None:
    await registry(sandbox, repositories=[{"prefixes": ["shop"], "namespaces": {"names": ["another"]}}])
    await sandbox.start(make_operator())
    preview = Preview(sandbox)
    await preview.ask(image=f"{host(sandbox)}/shop/app")
    await sandbox.condition(PreviewEnvironment, preview.name, "False", reason="RegistryNotAllowed")
    own = {"prefixes": ["shop"], "namespaces": {"names": [sandbox.namespace]}}
    await registry(sandbox, repositories=[own])
    await preview.ready()


async def test_a_preview_keeps_serving_its_image_when_its_next_one_is_refused(sandbox: Sandbox) -> None:
    await registry(sandbox)
    await sandbox.start(make_operator())
    preview = Preview(sandbox)
    await preview.ask(image=f"{host(sandbox)}/{sandbox.namespace}/app")
    await preview.ready()
    await preview.ask(image=f"{host(sandbox)}/victim/app")
    await sandbox.condition(PreviewEnvironment, preview.name, "False", reason="RegistryNotAllowed")
    (container,) = (await preview.child(DEPLOYMENT, "app"))["spec"]["template"]["spec"]["containers"]
    assert container["image"].startswith(f"{host(sandbox)}/{sandbox.namespace}/app:")
