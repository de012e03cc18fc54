"""Charts rendered by the real helm, and what a hostile one tries."""

from __future__ import annotations

import asyncio
import io
import tarfile
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from kapsa.adapters.errors import ExternalNotFound, Refused
from kapsa.adapters.oci.image_reference import ImageReference
from kapsa.environments.ports import Rendered
from kapsa.environments.render import Injected, Renderer, RenderFailed
from kapsa.environments.resources import Deployment, EnvVar
from tests.environments.render.conftest import Writes

DIGEST = "sha256:" + "a" * 64
IMAGE = ImageReference.parse(f"registry.example.com/team/app:v1@{DIGEST}")
CHART = "apiVersion: v2\nname: app\nversion: 0.1.0\n"
CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\ndata:\n"
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: {{ .Release.Namespace }}}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: "{{ .Values.image.repository }}:{{ .Values.image.tag }}"
        env: {{ toJson .Values.env }}
      - name: sidecar
        image: envoy:1
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec:
  rules:
  - host: {{ .Values.ingress.host }}
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
"""


def injected(**more: Any) -> Injected:
    return Injected(release="app", namespace="team-app-pr-7", host="pr-7.example.com", **more)


async def render(
    renderer: Renderer,
    checkout: Writes,
    files: Mapping[str, str],
    values: Mapping[str, Any] | None = None,
    **more: Any,
) -> Rendered:
    made = checkout({"chart/Chart.yaml": CHART, **files})
    deployment = Deployment(type="helm", path="./chart", values=values or {})
    return await renderer.render(made, deployment, injected(**more))


async def test_image_host_and_variables_are_put_in_and_the_image_runs_by_digest(
    renderer: Renderer, checkout: Writes
) -> None:
    values = {
        "image": {"repository": "elsewhere/app", "pullPolicy": "Always"},
        "env": [{"name": "A", "value": "1"}],
    }
    rendered = await render(
        renderer, checkout, {"chart/templates/app.yaml": DEPLOYMENT}, values, image=IMAGE,
        variables=(EnvVar(name="DEBUG", value="true"),),
    )  # fmt: skip
    deployment, ingress = rendered.objects
    web, sidecar = deployment["spec"]["template"]["spec"]["containers"]
    assert web["image"] == f"registry.example.com/team/app@{DIGEST}"
    assert sidecar["image"] == "envoy:1"
    assert web["env"] == [{"name": "A", "value": "1"}, {"name": "DEBUG", "value": "true"}]
    assert ingress["spec"]["rules"][0]["host"] == "pr-7.example.com"
    assert deployment["metadata"]["namespace"] == "team-app-pr-7"
    assert rendered.warnings == ()


async def test_an_image_that_is_known_by_digest_only_runs_by_digest(
    renderer: Renderer, checkout: Writes
) -> None:
    image = ImageReference.parse(f"registry.example.com/team/app@{DIGEST}")
    rendered = await render(
        renderer, checkout, {"chart/templates/app.yaml": DEPLOYMENT}, {"env": []}, image=image
    )
    assert rendered.objects[0]["spec"]["template"]["spec"]["containers"][0]["image"] == image.pinned


async def test_a_chart_that_takes_the_digest_gets_it(renderer: Renderer, checkout: Writes) -> None:
    told = CONFIG_MAP + "  image: {{ toJson .Values.image | quote }}\n"
    rendered = await render(renderer, checkout, {"chart/templates/a.yaml": told}, image=IMAGE)
    given = {"digest": DIGEST, "repository": "registry.example.com/team/app", "tag": IMAGE.tag}
    assert msgspec.json.decode(rendered.objects[0]["data"]["image"]) == given


async def test_a_chart_with_variables_by_name_gets_them_by_name(renderer: Renderer, checkout: Writes) -> None:
    files = {
        "chart/values.yaml": "env: {A: kept, DEBUG: 'false'}\n",
        "chart/templates/a.yaml": CONFIG_MAP + "  env: {{ toJson .Values.env | quote }}\n",
    }
    rendered = await render(renderer, checkout, files, variables=(EnvVar(name="DEBUG", value="true"),))
    assert rendered.objects[0]["data"]["env"] == '{"A":"kept","DEBUG":"true"}'


async def test_a_chart_that_ignores_the_image_is_remarked_upon(renderer: Renderer, checkout: Writes) -> None:
    rendered = await render(
        renderer, checkout, {"chart/templates/a.yaml": CONFIG_MAP + "  a: b\n"}, image=IMAGE
    )
    assert "no container of the chart runs registry.example.com/team/app" in rendered.warnings[0]


async def test_variables_that_the_chart_ignores_are_remarked_upon(
    renderer: Renderer, checkout: Writes
) -> None:
    rendered = await render(
        renderer, checkout, {"chart/templates/a.yaml": DEPLOYMENT.replace("{{ toJson .Values.env }}", "[]")},
        image=IMAGE, variables=(EnvVar(name="DEBUG", value="true"),), env_from=[{"secretRef": {"name": "database"}}],
    )  # fmt: skip
    assert rendered.warnings == (
        "no container of the chart has DEBUG: it should use env",
        "no container of the chart has the variables of database: it should use envFrom",
    )


async def test_a_template_that_looks_things_up_finds_nothing(
    renderer: Renderer, checkout: Writes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/etc/kubernetes/admin.conf")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    text = CONFIG_MAP + (
        '  secret: {{ lookup "v1" "Secret" "kube-system" "" | toJson | quote }}\n'
        '  address: {{ getHostByName "localhost" | quote }}\n'
        '  file: {{ .Files.Get "../../../../etc/passwd" | quote }}\n'
        '  absolute: {{ .Files.Get "/etc/passwd" | quote }}\n'
        '  globbed: {{ (.Files.Glob "../**").AsConfig | quote }}\n'
    )
    rendered = await render(renderer, checkout, {"chart/templates/a.yaml": text})
    data = rendered.objects[0]["data"]
    assert data == {"secret": "{}", "address": "", "file": "", "absolute": "", "globbed": "{}\n"} or data[
        "globbed"
    ] in ("", "{}")
    assert (data["secret"], data["address"], data["file"], data["absolute"]) == ("{}", "", "", "")


@pytest.mark.parametrize("function", ['env "HOME"', 'expandenv "$HOME"'])
async def test_a_template_can_not_read_the_operators_variables(
    renderer: Renderer, checkout: Writes, function: str
) -> None:
    with pytest.raises(RenderFailed, match="not defined"):
        await render(
            renderer, checkout, {"chart/templates/a.yaml": CONFIG_MAP + f"  a: {{{{ {function} }}}}\n"}
        )


async def test_a_schema_that_refers_to_servers_or_files_is_not_followed(
    checkout: Writes, asked: tuple[str, list[str]]
) -> None:
    address, seen = asked
    for reference in (f"{address}/x", "file:///etc/passwd"):
        for schema in (f'{{"$ref": "{reference}"}}', f'{{"$schema": "{reference}"}}'):
            files = {
                "chart/values.schema.json": schema,
                "chart/templates/a.yaml": CONFIG_MAP + f"  a: {len(schema)}\n",
            }
            rendered = await render(Renderer(timeout=30), checkout, files)
            assert "values.schema.json is not checked" in rendered.warnings[0]
    assert seen == []


async def test_a_schema_of_its_own_is_checked(renderer: Renderer, checkout: Writes) -> None:
    files = {
        "chart/values.schema.json": '{"$schema": "http://json-schema.org/draft-07/schema#", "required": ["port"]}',
        "chart/templates/a.yaml": CONFIG_MAP + "  a: b\n",
    }
    with pytest.raises(RenderFailed, match="port"):
        await render(renderer, checkout, files)


async def test_a_dependency_that_is_not_vendored_is_not_fetched_and_named(
    renderer: Renderer, checkout: Writes
) -> None:
    chart = (
        CHART + "dependencies: [{name: redis, version: 1.0.0, repository: 'https://charts.example.com'}]\n"
    )
    with pytest.raises(RenderFailed, match="redis") as error:
        await render(renderer, checkout, {"chart/Chart.yaml": chart})
    assert "helm dependency build" in error.value.hint


async def test_dependencies_in_the_charts_directory_are_rendered_with_their_values(
    renderer: Renderer, checkout: Writes
) -> None:
    chart = (
        CHART + "dependencies: [{name: redis, version: 1.0.0, repository: 'https://charts.example.com'}]\n"
    )
    files = {
        "chart/Chart.yaml": chart,
        "chart/charts/redis/Chart.yaml": "apiVersion: v2\nname: redis\nversion: 1.0.0\n",
        "chart/charts/redis/templates/a.yaml": CONFIG_MAP + "  memory: {{ .Values.memory }}\n",
    }
    rendered = await render(renderer, checkout, files, {"redis": {"memory": "64mb"}})
    assert [each["data"] for each in rendered.objects] == [{"memory": "64mb"}]


async def test_an_archive_that_unpacks_elsewhere_is_refused(renderer: Renderer, checkout: Writes) -> None:
    made = checkout({"chart/Chart.yaml": CHART, "chart/charts/.keep": ""})
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in (("sub/Chart.yaml", CHART), ("sub/../../../evil.yaml", "a: b")):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content.encode()))
    (made.root / "chart/charts/sub.tgz").write_bytes(packed.getvalue())
    with pytest.raises(RenderFailed):
        await renderer.render(made, Deployment(type="helm", path="chart"), injected())
    assert not list(made.root.parent.rglob("evil.yaml"))


async def test_a_template_without_end_is_ended_and_not_worth_a_retry(checkout: Writes) -> None:
    text = '{{ range until 100000 }}{{ range until 100000 }}{{ sha256sum "x" }}{{ end }}{{ end }}'
    with pytest.raises(RenderFailed, match="longer than 1 s") as error:
        await render(Renderer(timeout=1), checkout, {"chart/templates/a.yaml": CONFIG_MAP + f"  a: {text}\n"})
    assert error.value.reason == "RenderTooSlow"
    assert not error.value.retryable


async def test_a_template_that_wants_all_memory_is_ended(checkout: Writes) -> None:
    text = CONFIG_MAP + '  a: {{ repeat 200000000 "xxxxxxxxxx" | quote }}\n'
    with pytest.raises(Refused, match=r"memory|printed more"):
        await render(
            Renderer(timeout=30, memory_bytes=200_000_000), checkout, {"chart/templates/a.yaml": text}
        )


async def test_a_mistake_in_a_template_is_told_in_helms_words_without_our_paths(
    renderer: Renderer, checkout: Writes
) -> None:
    with pytest.raises(RenderFailed, match="port is required") as error:
        await render(
            renderer, checkout, {"chart/templates/a.yaml": '{{ required "port is required" .Values.port }}'}
        )
    assert "/checkout" not in str(error.value)
    assert str(error.value).count("\n") == 0
    assert not error.value.retryable


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ .Values.a.b.c }}", "nil pointer"),
        ("{{ if }}", r"templates/a\.yaml:1"),
        ("a: [", "YAML"),
        ("kind: ConfigMap\n" * 2, "helm|twice"),
        ('{{ fail (repeat 100000 "x") }}', "xxx"),
    ],
)
async def test_a_broken_chart_is_told_shortly(
    renderer: Renderer, checkout: Writes, template: str, words: str
) -> None:
    with pytest.raises(RenderFailed, match=words) as error:
        await render(renderer, checkout, {"chart/templates/a.yaml": template})
    assert len(str(error.value)) < 1600


async def test_hooks_are_not_run_and_named(renderer: Renderer, checkout: Writes) -> None:
    hook = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: migrate, annotations: {helm.sh/hook: pre-install}}\n"
    files = {"chart/templates/a.yaml": CONFIG_MAP + "  a: b\n", "chart/templates/hook.yaml": hook}
    rendered = await render(renderer, checkout, files)
    assert [each["kind"] for each in rendered.objects] == ["ConfigMap"]
    assert rendered.warnings == ("Job migrate is a Helm hook, which is not run",)


@pytest.mark.parametrize("release", ["a" * 54, "-x", "--set", "App", ""])
async def test_a_release_that_helm_could_misread_is_refused(
    renderer: Renderer, checkout: Writes, release: str
) -> None:
    made = checkout({"chart/Chart.yaml": CHART})
    brought = Injected(release=release, namespace="team-app-pr-7")
    with pytest.raises(Refused, match="Helm release"):
        await renderer.render(made, Deployment(type="helm", path="chart"), brought)


async def test_a_path_without_a_chart_is_named(renderer: Renderer, checkout: Writes) -> None:
    made = checkout({"other/file": "x"})
    with pytest.raises(RenderFailed, match=r"no Chart\.yaml in 'other'"):
        await renderer.render(made, Deployment(type="helm", path="other"), injected())
    with pytest.raises(ExternalNotFound, match="'nothing'"):
        await renderer.render(made, Deployment(type="helm", path="nothing"), injected())


@pytest.mark.virtual_time
async def test_virtual_time_stands_still_while_helm_runs(renderer: Renderer, checkout: Writes) -> None:
    before = asyncio.get_running_loop().time()
    await render(renderer, checkout, {"chart/templates/a.yaml": CONFIG_MAP + "  a: b\n"})
    assert asyncio.get_running_loop().time() == before
