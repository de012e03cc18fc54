"""Plain manifests, and the injection of an environment's parts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kapsa.adapters.errors import ExternalNotFound, Refused, RenderFailed
from kapsa.adapters.git.checkout import Checkout
from kapsa.adapters.oci.image_reference import ImageReference
from kapsa.environments.ports import Rendered
from kapsa.environments.render.inputs import Injected
from kapsa.environments.render.renderer import Renderer
from kapsa.environments.resources import Deployment, EnvVar
from tests.adapters.checkouts import WriteCheckout

IMAGE = ImageReference.parse("registry.example.com/team/app:v1@sha256:" + "a" * 64)
CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: NAME}\n"


def workload(*images: str, kind: str = "Deployment", name: str = "web", prepares: str = "") -> str:
    containers = "".join(
        f"\n      - {{name: c{number}, image: '{image}'}}" for number, image in enumerate(images)
    )
    before = f"\n      initContainers: [{{name: before, image: '{prepares}'}}]" if prepares else ""
    return (
        f"apiVersion: apps/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n  template:\n    spec:{before}\n"
        f"      containers:{containers}\n"
    )


def ingress(*hosts: str) -> str:
    rules = ", ".join(f"{{host: {host}}}" if host else "{http: {paths: []}}" for host in hosts)
    return f"apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{name: web}}\nspec: {{rules: [{rules}]}}\n"


async def render(
    renderer: Renderer, checkout: WriteCheckout, files: Mapping[str, str], path: str = "deploy", **more: Any
) -> Rendered:
    brought = Injected(release="app", namespace="team-app-pr-7", **more)
    return await renderer.render(checkout(files), Deployment(type="manifest", path=path), brought)


def containers(rendered: Rendered, number: int = 0) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = rendered.objects[number]["spec"]["template"]["spec"]["containers"]
    return listed


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"deploy/README.md": "x"}, "no YAML files in 'deploy'"),
        ({"deploy/a.yaml": "# nothing yet\n"}, "hold no objects"),
        ({"deploy/kustomization.yaml": "resources: []"}, "is a kustomization"),
        ({"deploy/Chart.yaml": "name: x"}, "is a Helm chart"),
        ({"deploy/a.yaml": "kind: ConfigMap"}, r"deploy/a\.yaml has a document that is not a Kubernetes object"),
        ({"deploy/a.yaml": "a: [1"}, r"deploy/a\.yaml is not YAML: line"),
        ({"deploy/a.yaml": "{{ .Values.x }}: y"}, r"deploy/a\.yaml"),
    ],
)  # fmt: skip
async def test_a_mistake_is_reported_with_its_file(
    renderer: Renderer, checkout: WriteCheckout, files: Mapping[str, str], words: str
) -> None:
    with pytest.raises(RenderFailed, match=words):
        await render(renderer, checkout, files)


async def test_a_path_that_does_not_exist_or_leaves_the_repository_is_refused(
    renderer: Renderer, checkout: WriteCheckout
) -> None:
    with pytest.raises(ExternalNotFound, match="'deploy'"):
        await render(renderer, checkout, {"a": "b"})
    for path in ("../deploy", "/etc", "deploy/../../x", ".git/config"):
        with pytest.raises(Refused):
            await render(renderer, checkout, {"a": "b"}, path)


async def test_a_directory_with_a_link_to_elsewhere_is_refused_with_its_name(
    renderer: Renderer, checkout: WriteCheckout, tmp_path: Path
) -> None:
    made = checkout({"deploy/a.yaml": CONFIG_MAP.replace("NAME", "one")})
    omitted = Checkout(made.commit, made.root, {"deploy/b.yaml": "is a symbolic link to '/etc/passwd'"})
    brought = Injected(release="app", namespace="x")
    with pytest.raises(Refused, match=r"'deploy/b\.yaml' is a symbolic link"):
        await renderer.render(omitted, Deployment(type="manifest", path="deploy"), brought)


# -- injection -------------------------------------------------------------------------------------------------


async def test_the_only_container_gets_the_image_by_digest(
    renderer: Renderer, checkout: WriteCheckout
) -> None:
    rendered = await render(renderer, checkout, {"deploy/a.yaml": workload("whatever:1")}, image=IMAGE)
    assert containers(rendered)[0]["image"] == IMAGE.pinned


@pytest.mark.parametrize("named", ["registry.example.com/team/app", "team/app:old", "app:latest"])
async def test_of_several_containers_the_one_that_names_the_image_gets_it(
    renderer: Renderer, checkout: WriteCheckout, named: str
) -> None:
    files = {
        "deploy/a.yaml": workload("envoy:1", named, prepares=named),
        "deploy/b.yaml": workload("redis:7"),
    }
    rendered = await render(
        renderer, checkout, files, image=IMAGE, variables=(EnvVar(name="A", value="1"),),
        env_from=[{"secretRef": {"name": "database"}}],
    )  # fmt: skip
    envoy, ours = containers(rendered)
    before = rendered.objects[0]["spec"]["template"]["spec"]["initContainers"][0]
    assert (envoy["image"], ours["image"], before["image"]) == ("envoy:1", IMAGE.pinned, IMAGE.pinned)
    assert containers(rendered, 1)[0]["image"] == "redis:7"
    assert ours["env"] == [{"name": "A", "value": "1"}]
    assert ours["envFrom"] == [{"secretRef": {"name": "database"}}]
    assert "env" not in envoy
    assert "env" not in before


async def test_an_image_that_could_be_for_several_containers_is_an_error(
    renderer: Renderer, checkout: WriteCheckout
) -> None:
    with pytest.raises(RenderFailed, match=r"not clear which container runs.*Deployment web") as error:
        await render(renderer, checkout, {"deploy/a.yaml": workload("envoy:1", "redis:7")}, image=IMAGE)
    assert error.value.reason == "ImageNotUsed"
    assert "app" in error.value.hint


async def test_an_image_that_nothing_runs_causes_a_warning(
    renderer: Renderer, checkout: WriteCheckout
) -> None:
    rendered = await render(
        renderer, checkout, {"deploy/a.yaml": CONFIG_MAP.replace("NAME", "one")}, image=IMAGE
    )
    assert rendered.warnings == (
        "nothing runs the image registry.example.com/team/app: the repository has no workload",
    )


async def test_a_variable_replaces_one_of_the_same_name(renderer: Renderer, checkout: WriteCheckout) -> None:
    text = workload("app:1").replace(
        "image: 'app:1'", "image: 'app:1', env: [{name: A, value: old}, {name: B, value: kept}]"
    )
    rendered = await render(
        renderer, checkout, {"deploy/a.yaml": text}, variables=(EnvVar(name="A", value="new"),)
    )
    assert containers(rendered)[0]["env"] == [{"name": "B", "value": "kept"}, {"name": "A", "value": "new"}]


@pytest.mark.parametrize("hosts", [("app.example.com",), ("",), ("app.example.com", "app.example.com")])
async def test_an_ingress_of_one_host_or_none_gets_the_environments(
    renderer: Renderer, checkout: WriteCheckout, hosts: tuple[str, ...]
) -> None:
    rendered = await render(renderer, checkout, {"deploy/a.yaml": ingress(*hosts)}, host="pr-7.example.com")
    assert {rule["host"] for rule in rendered.objects[0]["spec"]["rules"]} == {"pr-7.example.com"}


async def test_an_ingress_of_several_hosts_is_not_changed(
    renderer: Renderer, checkout: WriteCheckout
) -> None:
    files = {"deploy/a.yaml": ingress("a.example.com", "b.example.com")}
    rendered = await render(renderer, checkout, files, host="pr-7.example.com")
    assert [rule["host"] for rule in rendered.objects[0]["spec"]["rules"]] == [
        "a.example.com",
        "b.example.com",
    ]


async def test_a_variable_whose_name_is_not_a_text_is_left_to_the_api_server(
    renderer: Renderer, checkout: WriteCheckout
) -> None:
    text = workload("app:1").replace("image:", "env: [{name: [A], value: b}], image:")
    rendered = await render(
        renderer, checkout, {"deploy/a.yaml": text}, variables=(EnvVar(name="A", value="1"),)
    )
    assert containers(rendered)[0]["env"] == [{"name": ["A"], "value": "b"}, {"name": "A", "value": "1"}]


async def test_invalid_containers_are_ignored(renderer: Renderer, checkout: WriteCheckout) -> None:
    text = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {template: {spec: {containers: x}}}\n"
    rendered = await render(
        renderer, checkout, {"deploy/a.yaml": text + "---\n" + workload("app:1")}, image=IMAGE
    )
    assert containers(rendered, 1)[0]["image"] == IMAGE.pinned
