"""Charts rendered for an environment by the real helm."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from kapsa.adapters.errors import ExternalNotFound, RenderFailed
from kapsa.adapters.oci.image_reference import ImageReference
from kapsa.environments.ports import GeneratedValue, Rendered
from kapsa.environments.render.inputs import Injected
from kapsa.environments.render.renderer import Renderer
from kapsa.environments.resources import Deployment, EnvVar
from tests.adapters.checkouts import WriteCheckout

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
    checkout: WriteCheckout,
    files: Mapping[str, str],
    values: Mapping[str, Any] | None = None,
    **more: Any,
) -> Rendered:
    made = checkout({"chart/Chart.yaml": CHART, **files})
    deployment = Deployment(type="helm", path="./chart", values=values or {})
    return await renderer.render(made, deployment, injected(**more))


async def test_image_host_and_variables_are_injected_and_the_image_runs_by_digest(
    renderer: Renderer, checkout: WriteCheckout
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
    renderer: Renderer, checkout: WriteCheckout
) -> None:
    image = ImageReference.parse(f"registry.example.com/team/app@{DIGEST}")
    rendered = await render(
        renderer, checkout, {"chart/templates/app.yaml": DEPLOYMENT}, {"env": []}, image=image
    )
    assert rendered.objects[0]["spec"]["template"]["spec"]["containers"][0]["image"] == image.pinned


async def test_a_chart_that_takes_the_digest_gets_it(renderer: Renderer, checkout: WriteCheckout) -> None:
    template = CONFIG_MAP + "  image: {{ toJson .Values.image | quote }}\n"
    rendered = await render(renderer, checkout, {"chart/templates/a.yaml": template}, image=IMAGE)
    given = {"digest": DIGEST, "repository": "registry.example.com/team/app", "tag": IMAGE.tag}
    assert msgspec.json.decode(rendered.objects[0]["data"]["image"]) == given


async def test_a_chart_with_variables_by_name_gets_them_by_name(
    renderer: Renderer, checkout: WriteCheckout
) -> None:
    files = {
        "chart/values.yaml": "env: {A: kept, DEBUG: 'false'}\n",
        "chart/templates/a.yaml": CONFIG_MAP + "  env: {{ toJson .Values.env | quote }}\n",
    }
    rendered = await render(renderer, checkout, files, variables=(EnvVar(name="DEBUG", value="true"),))
    assert rendered.objects[0]["data"]["env"] == '{"A":"kept","DEBUG":"true"}'


async def test_a_chart_that_ignores_the_image_causes_a_warning(
    renderer: Renderer, checkout: WriteCheckout
) -> None:
    rendered = await render(
        renderer, checkout, {"chart/templates/a.yaml": CONFIG_MAP + "  a: b\n"}, image=IMAGE
    )
    assert "no container of the chart runs registry.example.com/team/app" in rendered.warnings[0]


@pytest.mark.parametrize("env", ["[]", '[{"name": ["DEBUG"]}]'])
async def test_variables_that_the_chart_ignores_cause_a_warning(
    renderer: Renderer, checkout: WriteCheckout, env: str
) -> None:
    rendered = await render(
        renderer, checkout, {"chart/templates/a.yaml": DEPLOYMENT.replace("{{ toJson .Values.env }}", env)},
        image=IMAGE, variables=(EnvVar(name="DEBUG", value="true"),), env_from=[{"secretRef": {"name": "database"}}],
    )  # fmt: skip
    assert rendered.warnings == (
        "no container of the chart sets DEBUG: use .Values.env in its templates",
        "no container of the chart loads database: use .Values.envFrom in its templates",
    )


async def test_an_endless_template_is_killed_and_not_retryable(checkout: WriteCheckout) -> None:
    text = '{{ range until 100000 }}{{ range until 100000 }}{{ sha256sum "x" }}{{ end }}{{ end }}'
    with pytest.raises(RenderFailed, match="longer than 1 s") as error:
        await render(Renderer(timeout=1), checkout, {"chart/templates/a.yaml": CONFIG_MAP + f"  a: {text}\n"})
    assert error.value.reason == "RenderTooSlow"
    assert not error.value.retryable


async def test_a_hook_causes_a_warning(renderer: Renderer, checkout: WriteCheckout) -> None:
    hook = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: migrate, annotations: {helm.sh/hook: pre-install}}\n"
    files = {"chart/templates/a.yaml": CONFIG_MAP + "  a: b\n", "chart/templates/hook.yaml": hook}
    rendered = await render(renderer, checkout, files)
    assert [each["kind"] for each in rendered.objects] == ["ConfigMap"]
    assert rendered.warnings == ("Job migrate is a Helm hook, which is not run",)


async def test_a_path_without_a_chart_is_reported_with_a_remedy(
    renderer: Renderer, checkout: WriteCheckout
) -> None:
    made = checkout({"other/file": "x"})
    with pytest.raises(RenderFailed, match=r"no Chart\.yaml in 'other'") as error:
        await renderer.render(made, Deployment(type="helm", path="other"), injected())
    assert error.value.hint == "Set deployment.path to the chart's directory"
    with pytest.raises(ExternalNotFound, match="'nothing'"):
        await renderer.render(made, Deployment(type="helm", path="nothing"), injected())


GENERATING = """
apiVersion: v1
kind: Secret
metadata: {name: database}
stringData:
  user: app
  password: {{ randAlphaNum 16 }}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: plain}
data: {a: b}
"""


async def test_values_that_a_chart_generates_are_recognized(
    renderer: Renderer, checkout: WriteCheckout
) -> None:
    rendered = await render(renderer, checkout, {"chart/templates/a.yaml": GENERATING})
    assert rendered.generated == (GeneratedValue("v1/Secret", "database", ("data", "password")),)
    secret = next(each for each in rendered.objects if each["kind"] == "Secret")
    assert base64.b64decode(secret["data"]["user"]) == b"app"
    assert "stringData" not in secret


async def test_a_generated_value_outside_of_secrets_is_warned_about_unless_a_secret_has_it(
    renderer: Renderer, checkout: WriteCheckout
) -> None:
    template = """
{{- $password := randAlphaNum 16 }}
apiVersion: v1
kind: Secret
metadata: {name: database, annotations: {checksum: {{ $password | sha256sum }}}}
stringData: {url: "postgres://app:{{ $password }}@db"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: plain, annotations: {checksum: {{ $password | sha256sum }}}}
data: {same: "password={{ $password }}", other: {{ randAlphaNum 16 }}}
"""
    rendered = await render(renderer, checkout, {"chart/templates/a.yaml": template})
    (warning,) = (each for each in rendered.warnings if "generated" in each)
    assert warning.startswith("ConfigMap plain has a generated value, data.other, that changes with each")


async def test_an_object_with_a_generated_name_is_warned_about(
    renderer: Renderer, checkout: WriteCheckout
) -> None:
    template = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: x-{{ randAlpha 8 | lower }}\n"
    rendered = await render(renderer, checkout, {"chart/templates/a.yaml": template})
    assert "has a generated name" in rendered.warnings[0]


async def test_a_chart_that_generates_nothing_has_no_generated_values(
    renderer: Renderer, checkout: WriteCheckout
) -> None:
    rendered = await render(renderer, checkout, {"chart/templates/a.yaml": CONFIG_MAP + "  a: b\n"})
    assert rendered.generated == ()


async def test_crds_of_a_chart_that_are_not_installed_are_warned_about(
    renderer: Renderer, checkout: WriteCheckout
) -> None:
    files = {"chart/templates/a.yaml": CONFIG_MAP + "  a: b\n", "chart/crds/x.yaml": "kind: X\n"}
    assert "crds/ of the chart are not installed" in " ".join(
        (await render(renderer, checkout, files)).warnings
    )
