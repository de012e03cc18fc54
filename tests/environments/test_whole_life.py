"""The whole life of a project, on either engine: real git over loopback, a real registry, the real helm and kustomize.

On the real engine the operator runs as the service account of its manifests, so that a right which is missing shows.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from kapsa.environments.previews import preview_name
from kapsa.environments.testing.git_server import GitRepository
from kapsa.environments.testing.registry_server import RegistryServer
from tests.environments.life import Life, living
from tests.environments.stage import Stage

pytestmark = pytest.mark.timeout(300)

WORKLOAD = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME}
spec:
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec:
      containers:
      - {name: web, image: "IMAGE", ports: [{name: http, containerPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: NAME}
spec:
  selector: {app: NAME}
  ports: [{name: http, port: 80, targetPort: http}]
"""


def workload(name: str, image: str = "app") -> str:
    return WORKLOAD.replace("NAME", name).replace("IMAGE", image)


FILES = {
    "Dockerfile": "FROM scratch\n",
    "charts/app/Chart.yaml": "apiVersion: v2\nname: app\nversion: 0.1.0\n",
    "charts/app/templates/app.yaml": workload(
        "from-chart", "{{ .Values.image.repository }}:{{ .Values.image.tag }}"
    ),
    "kustomize/base/app.yaml": workload("app"),
    "kustomize/base/kustomization.yaml": "resources: [app.yaml]\n",
    "kustomize/preview/kustomization.yaml": "resources: [../base]\nnamePrefix: kustomized-\n",
    "manifests/app.yaml": workload("from-manifests"),
}
HELM = {"type": "helm", "path": "./charts/app"}
PREVIEW = preview_name("feature/login")


@pytest_asyncio.fixture
async def life(
    stage: Stage, git_repository: GitRepository, registry_server: RegistryServer, tmp_path: Path
) -> AsyncIterator[Life]:
    git_repository.commit(FILES, message="Add the application")
    async with living(Life(stage, git_repository, registry_server, tmp_path)) as made:
        yield made


async def test_the_whole_life_of_a_project(life: Life) -> None:
    async with life.operator():
        await life.pool()
        await life.registry_resource()
        await life.project(HELM)
        commit = life.repository.commit({"src/login": "1"}, branch="feature/login")
        await life.poll()
        ready = await life.ready(PREVIEW, commit=commit)
        assert ready.status.image == f"{life.registry.endpoint}/team/app@{life.builder.pushed[commit]}"
        assert await life.containers(PREVIEW) == {"from-chart": ready.status.image}
        assert len(life.builder.completed) == 1
        assert ready.status.url == f"https://{PREVIEW}.{life.domain}"
        assert life.cert_manager.issued == [f"{PREVIEW}.{life.domain}"]
