"""Changes to the objects of a repository so that they can run in an environment."""

from __future__ import annotations

import asyncio
import subprocess
from typing import Any

import pytest

from kapsa.adapters.git.checkout import Checkout
from kapsa.adapters.oci.image_reference import ImageReference
from kapsa.adapters.process.tools import find_tool
from kapsa.environments.ports import Rendered
from kapsa.environments.render.filter import FilterRules, filter_objects
from kapsa.environments.render.inputs import Injected
from kapsa.environments.render.renderer import Renderer
from kapsa.environments.resources import Deployment
from tests.adapters.checkouts import WriteCheckout

IMAGE = ImageReference.parse("registry.example.com/team/app:v1@sha256:" + "a" * 64)
ACCOUNT = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: runner}\n"
JOB = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: migrate}\nspec: {ttlSecondsAfterFinished: 60, suspend: false}\n"
POD = (
    "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {template: {spec: "
    "{serviceAccountName: runner, MORE containers: [{name: a, image: 'a:1'}]}}}\n"
)


async def render(renderer: Renderer, checkout: WriteCheckout, text: str, **more: Any) -> Rendered:
    made = checkout({"deploy/a.yaml": text})
    brought = Injected(release="app", namespace="x", **more)
    return await renderer.render(made, Deployment(type="manifest", path="deploy"), brought)


@pytest.mark.parametrize(
    ("field", "warnings"),
    [
        ("", ()),
        ("automountServiceAccountToken: false\n", ()),
        ("automountServiceAccountToken: true\n", ("the token of ServiceAccount runner is not mounted",)),
    ],
)
async def test_the_token_of_a_service_account_is_not_mounted(
    renderer: Renderer, checkout: WriteCheckout, field: str, warnings: tuple[str, ...]
) -> None:
    rendered = await render(renderer, checkout, ACCOUNT + field)
    assert rendered.objects[0]["automountServiceAccountToken"] is False
    assert rendered.warnings == warnings


async def test_tokens_are_not_mounted_in_pods_that_request_them(
    renderer: Renderer, checkout: WriteCheckout
) -> None:
    text = POD.replace("MORE", "automountServiceAccountToken: true,")
    rendered = await render(renderer, checkout, text)
    assert rendered.objects[0]["spec"]["template"]["spec"]["automountServiceAccountToken"] is False
    assert rendered.warnings == ("service account tokens are not mounted in pods of Deployment web",)


@pytest.mark.parametrize(
    ("more", "secrets"),
    [
        ("", [{"name": "pull"}]),
        ("imagePullSecrets: [{name: own}],", [{"name": "own"}, {"name": "pull"}]),
        ("imagePullSecrets: [{name: pull}],", [{"name": "pull"}]),
        ("imagePullSecrets: nonsense,", [{"name": "pull"}]),
    ],
)
async def test_pods_of_any_account_can_pull_the_projects_images(
    renderer: Renderer, checkout: WriteCheckout, more: str, secrets: list[dict[str, str]]
) -> None:
    rendered = await render(renderer, checkout, POD.replace("MORE", more), pull_secret="pull")
    assert rendered.objects[0]["spec"]["template"]["spec"]["imagePullSecrets"] == secrets


async def test_without_a_pull_secret_pods_are_not_changed(
    renderer: Renderer, checkout: WriteCheckout
) -> None:
    rendered = await render(renderer, checkout, POD.replace("MORE", ""))
    assert "imagePullSecrets" not in rendered.objects[0]["spec"]["template"]["spec"]


async def test_a_job_that_deletes_itself_is_kept(renderer: Renderer, checkout: WriteCheckout) -> None:
    rendered = await render(renderer, checkout, JOB)
    assert rendered.objects[0]["spec"] == {"suspend": False}
    assert rendered.warnings == ("Job migrate is kept after it finishes: ttlSecondsAfterFinished is ignored",)


async def test_the_output_of_helm_create_can_be_deployed(renderer: Renderer, checkout: WriteCheckout) -> None:
    made: Checkout = checkout({})
    command = [str(find_tool("helm").path), "create", "app"]
    await asyncio.to_thread(subprocess.run, command, cwd=made.root, check=True, capture_output=True)
    brought = Injected(release="app", namespace="x", image=IMAGE, host="pr-7.example.com", pull_secret="pull")
    rendered = await renderer.render(made, Deployment(type="helm", path="app"), brought)
    kept = filter_objects(rendered.objects, FilterRules(namespace="x", hosts=["pr-7.example.com"]))
    assert {each["kind"] for each in kept} == {"Deployment", "Service", "ServiceAccount"}
    (deployment,) = (each for each in kept if each["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == IMAGE.pinned
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
