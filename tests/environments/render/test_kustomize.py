"""Kustomizations rendered for an environment by the real kustomize."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kapsa.adapters.errors import ExternalNotFound, RenderFailed
from kapsa.adapters.oci.image_reference import ImageReference
from kapsa.environments.ports import Rendered
from kapsa.environments.render.inputs import Injected
from kapsa.environments.render.renderer import Renderer
from kapsa.environments.resources import Deployment, EnvVar
from tests.adapters.checkouts import WriteCheckout

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
    renderer: Renderer, checkout: WriteCheckout, files: Mapping[str, str], path: str = "overlay", **more: Any
) -> Rendered:
    brought = Injected(release="app", namespace="team-app-pr-7", **more)
    return await renderer.render(checkout(files), Deployment(type="kustomize", path=path), brought)


async def test_an_overlay_is_built_on_its_base_and_gets_image_host_and_variables(
    renderer: Renderer, checkout: WriteCheckout
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


async def test_a_path_without_a_kustomization_is_reported(
    renderer: Renderer, checkout: WriteCheckout
) -> None:
    with pytest.raises(RenderFailed, match=r"no kustomization\.yaml in 'overlay'"):
        await build(renderer, checkout, {"overlay/app.yaml": CONFIG_MAP})
    with pytest.raises(ExternalNotFound, match="'nothing'"):
        await build(renderer, checkout, {"overlay/app.yaml": CONFIG_MAP}, path="nothing")


async def test_a_kustomization_that_would_run_helm_is_refused_with_a_remedy(
    renderer: Renderer, checkout: WriteCheckout
) -> None:
    text = "helmCharts: [{name: x, repo: 'oci://example.com'}]"
    with pytest.raises(RenderFailed, match="would run helm") as error:
        await build(renderer, checkout, {"overlay/kustomization.yaml": text})
    assert "deployment.type" in error.value.hint
