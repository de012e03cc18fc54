"""Kustomizations built by the real kustomize, and what a hostile one tries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kapsa.adapters.errors import ExternalNotFound, Refused
from kapsa.adapters.oci.image_reference import ImageReference
from kapsa.environments.ports import Rendered
from kapsa.environments.render import Injected, Renderer, RenderFailed
from kapsa.environments.resources import Deployment, EnvVar
from tests.environments.render.conftest import Writes

IMAGE = ImageReference.parse("registry.example.com/team/app:v1@sha256:" + "a" * 64)
CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\ndata: {a: b}\n"
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: app:dev, env: [{name: MODE, value: base}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec:
  tls: [{hosts: [app.example.com], secretName: tls}]
  rules:
  - host: app.example.com
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
"""


async def build(
    renderer: Renderer, checkout: Writes, files: Mapping[str, str], path: str = "overlay", **more: Any
) -> Rendered:
    brought = Injected(release="app", namespace="team-app-pr-7", **more)
    return await renderer.render(checkout(files), Deployment(type="kustomize", path=path), brought)


async def test_an_overlay_is_built_on_its_base_and_gets_image_host_and_variables(
    renderer: Renderer, checkout: Writes
) -> None:
    rendered = await build(
        renderer,
        checkout,
        {
            "base/kustomization.yaml": "resources: [app.yaml]\n",
            "base/app.yaml": DEPLOYMENT,
            "overlay/kustomization.yaml": "resources: [../base]\nnamePrefix: my-\nreplicas: [{name: web, count: 3}]\n",
        },
        image=IMAGE,
        host="pr-7.example.com",
        variables=(EnvVar(name="MODE", value="preview"),),
    )
    deployment, ingress = rendered.objects
    assert deployment["metadata"]["name"] == "my-web"
    assert deployment["spec"]["replicas"] == 3
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == IMAGE.pinned
    assert container["env"] == [{"name": "MODE", "value": "preview"}]
    assert ingress["spec"]["rules"][0]["host"] == "pr-7.example.com"
    assert ingress["spec"]["tls"][0]["hosts"] == ["pr-7.example.com"]


async def test_generators_components_patches_and_built_in_plugins_work(
    renderer: Renderer, checkout: Writes
) -> None:
    rendered = await build(
        renderer,
        checkout,
        {
            "app.yaml": CONFIG_MAP,
            "kustomization.yaml": (
                "resources: [app.yaml]\ncomponents: [part]\n"
                "configMapGenerator: [{name: made, literals: ['DOCS=https://docs.example.com'], files: [note.txt]}]\n"
                "transformers:\n- |-\n  apiVersion: builtin\n  kind: PrefixSuffixTransformer\n  metadata: {name: p}\n"
                "  prefix: pre-\n  fieldSpecs: [{path: metadata/name}]\n"
            ),
            "note.txt": "see https://example.com",
            "part/kustomization.yaml": (
                "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n"
                'patches: [{patch: \'[{"op": "add", "path": "/data/c", "value": "https://d"}]\','
                " target: {kind: ConfigMap, name: web}}]\n"
            ),
        },
        path=".",
    )
    made, web = sorted(rendered.objects, key=lambda each: str(each["metadata"]["name"]))
    assert made["metadata"]["name"].startswith("pre-made-")
    assert made["data"] == {"DOCS": "https://docs.example.com", "note.txt": "see https://example.com"}
    assert web["metadata"]["name"] == "pre-web"
    assert web["data"] == {"a": "b", "c": "https://d"}


@pytest.mark.parametrize(
    "text",
    [
        "resources: [app.yaml, URL/x.yaml]",
        "Resources: [app.yaml, URL/x.yaml]",
        "resources: [app.yaml, 'URL/x?ref=main']",
        "components: ['git::URL/x.git']",
        "bases: ['URL//x']",
        "resources: [app.yaml]\nconfigMapGenerator: [{name: g, files: ['x=URL/x']}]",
        "resources: [app.yaml]\nconfigMapGenerator: [{name: g, FILES: ['x=URL/x']}]",
        "resources: [app.yaml]\nsecretGenerator: [{name: g, envs: [URL/x]}]",
        "resources: [app.yaml]\npatches: [{path: URL/x}]",
        "resources: [app.yaml]\npatchesStrategicMerge: [URL/x]",
        "resources: [app.yaml]\ncrds: [URL/x]",
        "resources: [app.yaml]\nconfigurations: [URL/x]",
        "resources: [app.yaml]\nopenapi: {path: URL/x}",
        "resources: [app.yaml]\nreplacements: [{path: URL/x}]",
        "resources: [app.yaml]\ngenerators:\n- |-\n  kind: ConfigMapGenerator\n  files: ['x=URL/x']\n",
        "resources: [app.yaml]\ntransformers: [plugin.yaml]",
    ],
)
async def test_nothing_is_fetched_from_elsewhere_not_even_from_loopback(
    renderer: Renderer, checkout: Writes, asked: tuple[str, list[str]], text: str
) -> None:
    url, seen = asked
    files = {
        "overlay/app.yaml": CONFIG_MAP,
        # A directory that looks like the URL must not make the URL pass for a file.
        f"overlay/{url.replace('//', '/')}/x.yaml": CONFIG_MAP,
        "overlay/plugin.yaml": f"apiVersion: builtin\nkind: PatchTransformer\nmetadata: {{name: p}}\npath: {url}/x\n",
        "overlay/kustomization.yaml": text.replace("URL", url),
    }
    with pytest.raises(RenderFailed) as error:
        await build(renderer, checkout, files)
    assert error.value.reason == "BaseRefused"
    assert seen == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("resources: [../../outside]", "not in this repository"),
        ("resources: [/etc]", "leaves the repository"),
        ("resources: [github.com/team/base]", "remote bases are not fetched"),
        ("configMapGenerator: [{name: g, files: ['x=/etc/passwd']}]", "not in or below"),
        ("configMapGenerator: [{name: g, files: ['x=../secret.txt']}]", "not in or below"),
        ("helmCharts: [{name: x, repo: 'oci://example.com'}]", "would run a program"),
        ("HelmCharts: [{name: x, repo: 'oci://example.com'}]", "would run a program"),
        ("generators: [../plugins]", "names the directory"),
        ("generators:\n- |-\n  apiVersion: v1\n  kind: Own\n  metadata: {name: x}\n", "external plugins disabled"),
        ("resources: app.yaml", "must be a list of paths"),
        ("resources: []\nRESOURCES: []", "in two spellings"),
        ("[1, 2]", "is not one mapping"),
        ("namePrefix: [1]", "kustomize: invalid Kustomization"),
    ],
)  # fmt: skip
async def test_what_leaves_the_repository_or_runs_a_program_is_refused(
    renderer: Renderer, checkout: Writes, text: str, words: str
) -> None:
    files = {"secret.txt": "x", "plugins/kustomization.yaml": "", "overlay/kustomization.yaml": text}
    with pytest.raises(Refused, match=words) as error:
        await build(renderer, checkout, files)
    assert "/checkout" not in str(error.value)


async def test_a_base_that_refers_back_does_not_go_round_in_circles(
    renderer: Renderer, checkout: Writes
) -> None:
    files = {"a/kustomization.yaml": "resources: [../b]\n", "b/kustomization.yaml": "resources: [../a]\n"}
    with pytest.raises(RenderFailed, match="cycle"):
        await build(renderer, checkout, files, path="a")


async def test_a_path_that_holds_no_kustomization_is_named(renderer: Renderer, checkout: Writes) -> None:
    with pytest.raises(RenderFailed, match=r"no kustomization\.yaml in 'overlay'"):
        await build(renderer, checkout, {"overlay/app.yaml": CONFIG_MAP})
    with pytest.raises(ExternalNotFound, match="'nothing'"):
        await build(renderer, checkout, {"overlay/app.yaml": CONFIG_MAP}, path="nothing")
