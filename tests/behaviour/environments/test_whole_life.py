"""The whole life of a project, on either engine: real git over loopback, a real registry, the real helm and kustomize.

On the real engine the operator runs as the service account of its manifests, so that a right which is missing shows.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from kapsa.adapters.testing.git_server import GitRepository
from kapsa.adapters.testing.registry_server import RegistryServer
from kapsa.environments.names import APPROVED_COMMIT
from kapsa.environments.previews import preview_name
from kapsa.environments.resources import Environment, Project
from tests.behaviour.environments.life import Life, living
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
CLAIM = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
"""


def workload(name: str, image: str = "app") -> str:
    return WORKLOAD.replace("NAME", name).replace("IMAGE", image)


FILES = {
    "Dockerfile": "FROM scratch\n",
    "charts/app/Chart.yaml": "apiVersion: v2\nname: app\nversion: 0.1.0\n",
    "charts/app/templates/app.yaml": workload(
        "from-chart", "{{ .Values.image.repository }}:{{ .Values.image.tag }}"
    ),
    "charts/app/templates/claim.yaml": CLAIM,
    "kustomize/base/app.yaml": workload("app"),
    "kustomize/base/kustomization.yaml": "resources: [app.yaml]\n",
    "kustomize/preview/kustomization.yaml": "resources: [../base]\nnamePrefix: kustomized-\n",
    "manifests/app.yaml": workload("from-manifests"),
}
HELM = {"type": "helm", "path": "./charts/app"}
KUSTOMIZE = {"type": "kustomize", "path": "kustomize/preview"}
IMAGE = {"type": "image"}
MANIFESTS = {"type": "manifest", "path": "manifests"}
PERMANENT = [
    {"name": "staging", "branch": "main", "autoSync": True},
    {"name": "production", "branch": "main"},
]
BRANCH = "feature/login"
PREVIEW = preview_name(BRANCH)


@pytest_asyncio.fixture
async def life(
    stage: Stage, git_repository: GitRepository, registry_server: RegistryServer, tmp_path: Path
) -> AsyncIterator[Life]:
    git_repository.commit(FILES, message="Add the application")
    async with living(Life(stage, git_repository, registry_server, tmp_path)) as made, made.operator():
        await made.pool()
        await made.registry_resource()
        yield made


async def push(life: Life, text: str, branch: str = BRANCH, **files: str) -> str:
    """A commit that the operator gets to know of."""
    commit = life.repository.commit({"src/page": text, **files}, branch=branch)
    await life.poll()
    return commit


async def preview(life: Life) -> Environment:
    return await life.ready(PREVIEW, commit=await push(life, "one"))


async def test_a_pushed_branch_becomes_a_preview_with_image_host_and_certificate(life: Life) -> None:
    await life.project(HELM)
    commit = await push(life, "one")
    ready = await life.ready(PREVIEW, commit=commit)
    assert ready.status.phase == "Ready"
    assert len(life.builder.built) == 1
    assert ready.status.image == f"{life.registry.endpoint}/team/app@{life.builder.pushed[commit]}"
    assert await life.images(PREVIEW) == {"from-chart": ready.status.image}
    host = f"{PREVIEW}.{life.domain}"
    assert ready.status.url == f"https://{host}"
    assert life.cert_manager.issued == [host]
    assert await life.hosts() == [host]
    ingress = await life.client.get("networking.k8s.io/v1/Ingress", "kapsa", namespace=life.place(PREVIEW))
    assert [each["host"] for each in ingress["spec"]["rules"]] == [host]
    assert {each.type: each.status for each in ready.status.conditions} == dict.fromkeys(
        ["NamespaceReady", "BuildReady", "DeploymentReady", "IngressReady", "TLSReady", "Ready"], "True"
    )


async def test_a_project_is_deployed_from_chart_kustomization_manifests_and_image_in_turn(life: Life) -> None:
    await life.project(HELM)
    image = (await preview(life)).status.image
    assert await life.images(PREVIEW) == {"from-chart": image}
    for deployment, name in ((KUSTOMIZE, "kustomized-app"), (MANIFESTS, "from-manifests"), (IMAGE, "app")):
        await life.project(deployment)
        await life.serves(PREVIEW, {name: image}, service=name)
        await life.ready(PREVIEW)
    assert len(life.builder.built) == 1, "the image of a commit is built once"


async def test_a_second_push_and_a_force_push_update_a_preview(life: Life) -> None:
    await life.project(HELM)
    first = await preview(life)
    second = await life.ready(PREVIEW, commit=await push(life, "two"))
    assert second.status.image != first.status.image
    assert await life.images(PREVIEW) == {"from-chart": second.status.image}
    rewritten = life.repository.force_push({**FILES, "src/page": "three"}, branch=BRANCH)
    await life.poll()
    third = await life.ready(PREVIEW, commit=rewritten)
    assert await life.images(PREVIEW) == {"from-chart": third.status.image}
    assert third.status.url == first.status.url
    assert third.status.namespace == first.status.namespace


async def test_a_failed_build_keeps_the_old_version_serving_and_says_why(life: Life) -> None:
    await life.project(HELM)
    serving = await preview(life)
    async with life.failing_builds():
        broken = await push(life, "broken", Dockerfile="FROM scratch\nRUN exit 2\n")
        failed = await life.reaches(PREVIEW, lambda each: each.status.phase == "Failed", "has failed")
    failure = failed.status.failure
    assert failure is not None
    assert (failure.step, failure.reason) == ("build", "BuildFailed")
    assert broken[:12] in failure.message
    assert failure.object == f"Job {life.builder.failed[0]}"
    if life.stage.harness.cluster.engine == "embedded":  # the real one has no kubelet that keeps logs
        assert "did not complete successfully: exit code: 2" in failure.log_tail
    assert await life.images(PREVIEW) == {"from-chart": serving.status.image}
    assert failed.status.url == serving.status.url
    assert failed.status.commit_sha == serving.status.commit_sha
    assert failed.status.is_true("DeploymentReady")
    project = await life.client.get(Project, "app", namespace=life.stage.namespace)
    assert not project.status.is_true("BuildSucceeded")
    mended = await life.ready(PREVIEW, commit=await push(life, "mended", **FILES))
    assert mended.status.failure is None


async def test_a_preview_goes_two_polls_after_its_branch_with_namespace_host_image_and_claims(
    life: Life,
) -> None:
    await life.project(HELM)
    await preview(life)
    (volume,) = await life.volumes(PREVIEW)
    assert len(life.registry.tags("team/app")) == 1
    life.repository.delete_branch(BRANCH)
    await life.poll()
    await life.missed(PREVIEW)
    still = await life.environment(PREVIEW)
    assert still is not None
    assert not still.metadata.deleting
    await life.poll()
    await life.stage.gone(Environment, PREVIEW, namespace=life.home)
    assert await life.stage.get("v1/Namespace", life.place(PREVIEW), namespace="") is None
    assert await life.hosts() == []
    assert life.registry.tags("team/app") == []
    await life.stage.gone("v1/PersistentVolume", volume, namespace="")


async def test_permanent_environments_follow_their_branches_if_they_are_told_to(life: Life) -> None:
    await life.project(MANIFESTS, environments=PERMANENT, previewEnvironments={"enabled": False})
    first = await push(life, "one", "main")
    for name in ("staging", "production"):
        ready = await life.ready(name, commit=first)
        assert ready.spec.type == "deployment"
        assert ready.spec.ttl is None
    assert len(life.builder.built) == 1, "both wait for one build"
    second = await push(life, "two", "main")
    staging = await life.ready("staging", commit=second)
    assert await life.images("staging") == {"from-manifests": staging.status.image}
    production = await life.ready("production", commit=first)
    assert production.status.image != staging.status.image
    await life.update(Environment, "production", {"source": {"commitSha": second}}, namespace=life.home)
    production = await life.ready("production", commit=second)
    assert production.status.image == staging.status.image


async def test_a_deleted_project_takes_along_all_that_was_made_for_it(life: Life) -> None:
    await life.project(HELM, environments=PERMANENT[:1])
    await preview(life)
    await life.ready("staging")
    await life.client.delete(Project, "app", namespace=life.stage.namespace)
    await life.stage.gone(Project, "app", seconds=120)
    for namespace in (life.home, life.place(PREVIEW), life.place("staging")):
        assert await life.stage.get("v1/Namespace", namespace, namespace="") is None
    assert await life.hosts() == []
    builds = await life.client.list("batch/v1/Job", namespace=life.settings.build_namespace)
    assert builds.items == []


async def test_a_fork_is_built_and_gets_secrets_only_as_long_as_its_commit_is_approved(life: Life) -> None:
    await life.secret("settings", life.stage.namespace, {"KEY": "value"})
    await life.project(HELM, secrets=[{"name": "settings"}])
    await life.listed()
    commit = life.repository.pull_request(7, {"src/page": "theirs"})
    await life.poll()
    await life.reaches("pr-7", waits_for_approval, "waits for approval")
    assert life.builder.built == []
    assert await life.stage.get("v1/Secret", "settings", namespace=life.place("pr-7")) is None
    approval = {"metadata": {"annotations": {APPROVED_COMMIT: commit}}}
    await life.client.patch(Environment, "pr-7", approval, namespace=life.home)
    approved = await life.ready("pr-7", commit=commit)
    assert await life.images("pr-7") == {"from-chart": approved.status.image}
    assert await life.stage.get("v1/Secret", "settings", namespace=life.place("pr-7"))
    life.repository.pull_request(7, {"src/page": "theirs, and worse"})
    await life.poll()
    await life.reaches("pr-7", waits_for_approval, "waits for approval")
    assert await life.stage.get("v1/Secret", "settings", namespace=life.place("pr-7")) is None
    assert await life.images("pr-7") == {"from-chart": approved.status.image}


def waits_for_approval(environment: Environment) -> bool:
    condition = environment.status.condition("BuildReady")
    return condition is not None and condition.reason == "ApprovalRequired"


async def test_what_somebody_changes_in_an_environment_is_put_back(life: Life) -> None:
    await life.project(HELM)
    ready = await preview(life)
    place = life.place(PREVIEW)
    changed: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("v1/ResourceQuota", "kapsa-quota", {"hard": {"pods": "99"}}),
        ("networking.k8s.io/v1/NetworkPolicy", "kapsa-same-namespace", {"ingress": [{}]}),
        ("networking.k8s.io/v1/Ingress", "kapsa", {"ingressClassName": "other"}),
        ("v1/Service", "from-chart", {"selector": {"app": "other"}}),
    )
    before = [(await life.client.get(kind, name, namespace=place))["spec"] for kind, name, _ in changed]
    for kind, name, spec in changed:
        await life.client.patch(kind, name, {"spec": spec}, namespace=place)
    await life.client.delete("networking.k8s.io/v1/NetworkPolicy", "kapsa-default-deny", namespace=place)
    await life.stage.exists("networking.k8s.io/v1/NetworkPolicy", "kapsa-default-deny", namespace=place)

    async def put_back() -> bool:
        now = [(await life.client.get(kind, name, namespace=place))["spec"] for kind, name, _ in changed]
        return now == before

    await life.stage.until(put_back, "all is as before")
    assert (await life.ready(PREVIEW)).status.image == ready.status.image


async def test_a_host_that_is_reserved_or_taken_is_refused_by_name(life: Life) -> None:
    await life.project(HELM)
    first = await preview(life)
    for label, reason in (("www", "HostReserved"), (PREVIEW, "HostTaken")):
        host = f"{label}.{life.domain}"
        spec = {
            "projectRef": {"name": "app"},
            "source": {"commitSha": first.spec.source.commit_sha},
            "ingress": {"host": host},
        }
        await life.stage.apply(Environment, "second", spec, namespace=life.home)
        failed = await life.reaches("second", lambda each: each.status.phase == "Failed", f"fails for {host}")
        assert failed.status.failure is not None
        assert failed.status.failure.reason == reason
        assert host in failed.status.failure.message
    assert (await life.ready(PREVIEW)).status.url == first.status.url
    assert await life.hosts() == [f"{PREVIEW}.{life.domain}"]


@pytest.mark.real
async def test_under_a_quota_pods_that_ask_for_nothing_are_admitted(life: Life) -> None:
    quota = {"cpu": "200m", "memory": "256Mi", "pods": 2}
    await life.project(MANIFESTS, resources={"defaultQuota": quota})
    await preview(life)
    await life.ready(PREVIEW, commit=await push(life, "two"))
    place = life.place(PREVIEW)
    pod = (await life.client.list("v1/Pod", namespace=place)).items[0]
    half = {"cpu": "100m", "memory": "128Mi"}
    assert pod["spec"]["containers"][0]["resources"] == {"limits": half, "requests": half}

    async def counted() -> bool:
        found = await life.client.get("v1/ResourceQuota", "kapsa-quota", namespace=place)
        return bool(found["status"].get("used", {}).get("pods") == "1")

    await life.stage.until(counted, "the quota counts the pod")


@pytest.mark.real
async def test_an_update_that_has_no_room_in_the_quota_says_so_and_the_old_version_serves(life: Life) -> None:
    await life.project(MANIFESTS, resources={"defaultQuota": {"pods": 1}})
    serving = await preview(life)
    second = await push(life, "two")
    failed = await life.reaches(PREVIEW, lambda each: each.status.phase == "Failed", "has failed")
    failure = failed.status.failure
    assert failure is not None
    assert (failure.step, failure.reason) == ("apply", "QuotaExceeded")
    assert failure.object == "Deployment from-manifests"
    assert "room for the old and the new" in failure.hint
    (pod,) = (await life.client.list("v1/Pod", namespace=life.place(PREVIEW))).items
    assert pod["spec"]["containers"][0]["image"] == serving.status.image
    await life.project(MANIFESTS, resources={"defaultQuota": {"pods": 2}})
    await life.ready(PREVIEW, commit=second, seconds=200)
