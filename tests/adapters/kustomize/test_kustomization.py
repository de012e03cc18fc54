"""Kustomizations built by the real kustomize, and hostile ones."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kapsa.adapters.errors import Refused, RenderFailed
from kapsa.adapters.kustomize.kustomization import build_kustomization
from kapsa.adapters.manifests.manifest import Manifest
from kapsa.adapters.process.limited_process import ProcessLimits
from tests.adapters.checkouts import RecordingServer, WriteCheckout

CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\ndata: {a: b}\n"


async def build(checkout: WriteCheckout, files: Mapping[str, str], path: str = "overlay") -> list[Manifest]:
    root = checkout(files).root
    return await build_kustomization(root, (root / path).resolve(), limits=ProcessLimits(seconds=30))


async def test_generators_components_patches_and_built_in_plugins_work(checkout: WriteCheckout) -> None:
    objects = await build(
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
    made, web = sorted(objects, key=lambda each: str(each["metadata"]["name"]))
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
    checkout: WriteCheckout, recording_server: RecordingServer, text: str
) -> None:
    url = recording_server.url
    files = {
        "overlay/app.yaml": CONFIG_MAP,
        # A directory that looks like the URL must not make the URL pass for a file.
        f"overlay/{url.replace('//', '/')}/x.yaml": CONFIG_MAP,
        "overlay/plugin.yaml": f"apiVersion: builtin\nkind: PatchTransformer\nmetadata: {{name: p}}\npath: {url}/x\n",
        "overlay/kustomization.yaml": text.replace("URL", url),
    }
    with pytest.raises(RenderFailed) as error:
        await build(checkout, files)
    assert error.value.reason == "BaseRefused"
    assert recording_server.paths == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("resources: [../../outside]", "not in this repository"),
        ("resources: [/etc]", "is outside the repository"),
        ("resources: [github.com/team/base]", "remote bases are not fetched"),
        ("configMapGenerator: [{name: g, files: ['x=/etc/passwd']}]", "not in or below"),
        ("configMapGenerator: [{name: g, files: ['x=../secret.txt']}]", "not in or below"),
        ("helmCharts: [{name: x, repo: 'oci://example.com'}]", "would run helm"),
        ("HelmCharts: [{name: x, repo: 'oci://example.com'}]", "would run helm"),
        ("generators: [../plugins]", "is a directory"),
        ("generators:\n- |-\n  apiVersion: v1\n  kind: Own\n  metadata: {name: x}\n", "external plugins disabled"),
        ("resources: app.yaml", "must be a list of paths"),
        ("resources: []\nRESOURCES: []", "in two spellings"),
        ("[1, 2]", "must hold a single mapping"),
        ("namePrefix: [1]", "kustomize: invalid Kustomization"),
    ],
)  # fmt: skip
async def test_what_leaves_the_repository_or_runs_a_program_is_refused(
    checkout: WriteCheckout, text: str, words: str
) -> None:
    files = {"secret.txt": "x", "plugins/kustomization.yaml": "", "overlay/kustomization.yaml": text}
    with pytest.raises(Refused, match=words) as error:
        await build(checkout, files)
    assert "/checkout" not in str(error.value)


async def test_a_base_that_refers_back_does_not_go_round_in_circles(checkout: WriteCheckout) -> None:
    files = {"a/kustomization.yaml": "resources: [../b]\n", "b/kustomization.yaml": "resources: [../a]\n"}
    with pytest.raises(RenderFailed, match="cycle"):
        await build(checkout, files, path="a")


async def test_a_directory_without_a_kustomization_is_reported(checkout: WriteCheckout) -> None:
    with pytest.raises(RenderFailed, match=r"no kustomization\.yaml in 'overlay'") as error:
        await build(checkout, {"overlay/app.yaml": CONFIG_MAP})
    assert error.value.reason == "NoKustomization"
