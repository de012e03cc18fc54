"""A project from creation to deletion, on either engine, with real git, a real registry, helm and kustomize.

On the real engine the operator runs with the service account of its manifests, so that a missing right fails.
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
from kapsa.environments.resources import Environment, Project
from kapsa.environments.sources.previews import preview_name
from tests.behaviour.environments.end_to_end import EndToEnd, with_controllers
from tests.environments.sandbox import Sandbox

pytestmark = [pytest.mark.timeout(300), pytest.mark.sampled(5, of="module")]

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
PASSWORD = """
apiVersion: v1
kind: Secret
metadata: {name: database}
stringData:
  password: {{ randAlphaNum 32 | quote }}
  image: {{ .Values.image.tag | quote }}
"""
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
async def stopped(
    sandbox: Sandbox, git_repository: GitRepository, registry_server: RegistryServer, tmp_path: Path
) -> AsyncIterator[EndToEnd]:
    """The application on a cluster where no operator runs yet."""
    git_repository.commit(FILES, message="Add the application")
    async with with_controllers(EndToEnd(sandbox, git_repository, registry_server, tmp_path)) as made:
        yield made


@pytest_asyncio.fixture
async def e2e(stopped: EndToEnd) -> AsyncIterator[EndToEnd]:
    async with stopped.operator():
        await stopped.pool()
        await stopped.registry_resource()
        yield stopped


async def push(e2e: EndToEnd, text: str, branch: str = BRANCH, **files: str) -> str:
    """Push a commit that the operator detects."""
    commit = e2e.repository.commit({"src/page": text, **files}, branch=branch)
    await e2e.poll()
    return commit


async def preview(e2e: EndToEnd) -> Environment:
    return await e2e.ready(PREVIEW, commit=await push(e2e, "one"))


async def test_a_pushed_branch_becomes_a_preview_with_image_host_and_certificate(e2e: EndToEnd) -> None:
    await e2e.project(HELM)
    commit = await push(e2e, "one")
    ready = await e2e.ready(PREVIEW, commit=commit)
    assert ready.status.phase == "Ready"
    assert len(e2e.builder.built) == 1
    assert ready.status.image == f"{e2e.registry.endpoint}/team/app@{e2e.builder.pushed[commit]}"
    assert await e2e.images(PREVIEW) == {"from-chart": ready.status.image}
    host = f"{PREVIEW}.{e2e.domain}"
    assert ready.status.url == f"https://{host}"
    assert e2e.cert_manager.issued == [host]
    assert await e2e.hosts() == [host]
    ingress = await e2e.client.get(
        "networking.k8s.io/v1/Ingress", "kapsa", namespace=e2e.namespace_of(PREVIEW)
    )
    assert [each["host"] for each in ingress["spec"]["rules"]] == [host]
    assert {each.type: each.status for each in ready.status.conditions} == dict.fromkeys(
        ["NamespaceReady", "BuildReady", "DeploymentReady", "IngressReady", "TLSReady", "Ready"], "True"
    )


async def database(e2e: EndToEnd) -> dict[str, str]:
    """Return the values of the Secret that the chart generates, in base64."""
    secret = await e2e.client.get("v1/Secret", "database", namespace=e2e.namespace_of(PREVIEW))
    values: dict[str, str] = secret["data"]
    return values


async def test_a_password_that_a_chart_generates_outlives_a_restart_and_a_push(stopped: EndToEnd) -> None:
    async with stopped.operator():
        await stopped.pool()
        await stopped.registry_resource()
        await stopped.project(HELM)
        first = await push(stopped, "one", **{"charts/app/templates/password.yaml": PASSWORD})
        await stopped.ready(PREVIEW, commit=first)
        before = await database(stopped)
    async with stopped.operator():
        await stopped.poll()
        await stopped.sandbox.at_rest(5)
        assert await database(stopped) == before, "the operator has rendered the chart again"
        second = await push(stopped, "two")
        await stopped.ready(PREVIEW, commit=second)
        after = await database(stopped)
    assert after["password"] == before["password"]
    assert after["image"] != before["image"], "the rest of the Secret follows the push"


async def test_a_project_is_deployed_from_chart_kustomization_manifests_and_image_in_turn(
    e2e: EndToEnd,
) -> None:
    await e2e.project(HELM)
    image = (await preview(e2e)).status.image
    assert await e2e.images(PREVIEW) == {"from-chart": image}
    for deployment, name in ((KUSTOMIZE, "kustomized-app"), (MANIFESTS, "from-manifests"), (IMAGE, "app")):
        await e2e.project(deployment)
        await e2e.serves(PREVIEW, {name: image}, service=name)
        await e2e.ready(PREVIEW)
    assert len(e2e.builder.built) == 1, "the image of a commit is built once"


async def test_a_second_push_and_a_force_push_update_a_preview(e2e: EndToEnd) -> None:
    await e2e.project(HELM)
    first = await preview(e2e)
    second = await e2e.ready(PREVIEW, commit=await push(e2e, "two"))
    assert second.status.image != first.status.image
    assert await e2e.images(PREVIEW) == {"from-chart": second.status.image}
    rewritten = e2e.repository.force_push({**FILES, "src/page": "three"}, branch=BRANCH)
    await e2e.poll()
    third = await e2e.ready(PREVIEW, commit=rewritten)
    assert await e2e.images(PREVIEW) == {"from-chart": third.status.image}
    assert third.status.url == first.status.url
    assert third.status.namespace == first.status.namespace


async def test_a_failed_build_keeps_the_old_version_serving_and_says_why(e2e: EndToEnd) -> None:
    await e2e.project(HELM)
    serving = await preview(e2e)
    async with e2e.failing_builds():
        broken = await push(e2e, "broken", Dockerfile="FROM scratch\nRUN exit 2\n")
        failed = await e2e.reaches(PREVIEW, lambda each: each.status.phase == "Failed", "has failed")
    failure = failed.status.failure
    assert failure is not None
    assert (failure.step, failure.reason) == ("build", "BuildFailed")
    assert broken[:12] in failure.message
    assert failure.object == f"Job {e2e.builder.failed[0]}"
    if e2e.sandbox.harness.cluster.engine == "embedded":  # the real one has no kubelet that keeps logs
        assert "did not complete successfully: exit code: 2" in failure.log_tail
    assert await e2e.images(PREVIEW) == {"from-chart": serving.status.image}
    assert failed.status.url == serving.status.url
    assert failed.status.commit_sha == serving.status.commit_sha
    assert failed.status.is_true("DeploymentReady")
    project = await e2e.client.get(Project, "app", namespace=e2e.sandbox.namespace)
    assert not project.status.is_true("BuildSucceeded")
    mended = await e2e.ready(PREVIEW, commit=await push(e2e, "mended", **FILES))
    assert mended.status.failure is None


async def test_a_preview_goes_two_polls_after_its_branch_with_namespace_host_image_and_claims(
    e2e: EndToEnd,
) -> None:
    await e2e.project(HELM)
    await preview(e2e)
    (volume,) = await e2e.volumes(PREVIEW)
    assert len(e2e.registry.tags("team/app")) == 1
    e2e.repository.delete_branch(BRANCH)
    await e2e.poll()
    await e2e.missed(PREVIEW)
    still = await e2e.environment(PREVIEW)
    assert still is not None
    assert not still.metadata.deleting
    await e2e.poll()
    await e2e.sandbox.gone(Environment, PREVIEW, namespace=e2e.home)
    assert await e2e.sandbox.get("v1/Namespace", e2e.namespace_of(PREVIEW), namespace="") is None
    assert await e2e.hosts() == []
    assert e2e.registry.tags("team/app") == []
    await e2e.sandbox.gone("v1/PersistentVolume", volume, namespace="")


async def test_permanent_environments_follow_their_branches_with_auto_sync(e2e: EndToEnd) -> None:
    await e2e.project(MANIFESTS, environments=PERMANENT, previewEnvironments={"enabled": False})
    first = await push(e2e, "one", "main")
    for name in ("staging", "production"):
        ready = await e2e.ready(name, commit=first)
        assert ready.spec.type == "deployment"
        assert ready.spec.ttl is None
    assert len(e2e.builder.built) == 1, "both wait for one build"
    second = await push(e2e, "two", "main")
    staging = await e2e.ready("staging", commit=second)
    assert await e2e.images("staging") == {"from-manifests": staging.status.image}
    production = await e2e.ready("production", commit=first)
    assert production.status.image != staging.status.image
    await e2e.update(Environment, "production", {"source": {"commitSha": second}}, namespace=e2e.home)
    production = await e2e.ready("production", commit=second)
    assert production.status.image == staging.status.image


async def test_a_deleted_project_takes_along_all_that_was_made_for_it(e2e: EndToEnd) -> None:
    await e2e.project(HELM, environments=PERMANENT[:1])
    await preview(e2e)
    await e2e.ready("staging")
    await e2e.client.delete(Project, "app", namespace=e2e.sandbox.namespace)
    await e2e.sandbox.gone(Project, "app", seconds=120)
    for namespace in (e2e.home, e2e.namespace_of(PREVIEW), e2e.namespace_of("staging")):
        assert await e2e.sandbox.get("v1/Namespace", namespace, namespace="") is None
    assert await e2e.hosts() == []
    builds = await e2e.client.list("batch/v1/Job", namespace=e2e.settings.build_namespace)
    assert builds.items == []


async def test_a_fork_is_built_and_gets_secrets_only_as_long_as_its_commit_is_approved(e2e: EndToEnd) -> None:
    await e2e.secret("settings", e2e.sandbox.namespace, {"KEY": "value"})
    await e2e.project(HELM, secrets=[{"name": "settings"}])
    await e2e.listed()
    commit = e2e.repository.pull_request(7, {"src/page": "theirs"})
    await e2e.poll()
    await e2e.reaches("pr-7", waits_for_approval, "waits for approval")
    assert e2e.builder.built == []
    assert await e2e.sandbox.get("v1/Secret", "settings", namespace=e2e.namespace_of("pr-7")) is None
    approval = {"metadata": {"annotations": {APPROVED_COMMIT: commit}}}
    await e2e.client.patch(Environment, "pr-7", approval, namespace=e2e.home)
    approved = await e2e.ready("pr-7", commit=commit)
    assert await e2e.images("pr-7") == {"from-chart": approved.status.image}
    assert await e2e.sandbox.get("v1/Secret", "settings", namespace=e2e.namespace_of("pr-7"))
    e2e.repository.pull_request(7, {"src/page": "theirs, and worse"})
    await e2e.poll()
    await e2e.reaches("pr-7", waits_for_approval, "waits for approval")
    assert await e2e.sandbox.get("v1/Secret", "settings", namespace=e2e.namespace_of("pr-7")) is None
    assert await e2e.images("pr-7") == {"from-chart": approved.status.image}


def waits_for_approval(environment: Environment) -> bool:
    condition = environment.status.condition("BuildReady")
    return condition is not None and condition.reason == "ApprovalRequired"


async def test_what_somebody_changes_in_an_environment_is_put_back(e2e: EndToEnd) -> None:
    await e2e.project(HELM)
    ready = await preview(e2e)
    namespace = e2e.namespace_of(PREVIEW)
    changed: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("v1/ResourceQuota", "kapsa-quota", {"hard": {"pods": "99"}}),
        ("networking.k8s.io/v1/NetworkPolicy", "kapsa-same-namespace", {"ingress": [{}]}),
        ("networking.k8s.io/v1/Ingress", "kapsa", {"ingressClassName": "other"}),
        ("v1/Service", "from-chart", {"selector": {"app": "other"}}),
    )
    before = [(await e2e.client.get(kind, name, namespace=namespace))["spec"] for kind, name, _ in changed]
    for kind, name, spec in changed:
        await e2e.client.patch(kind, name, {"spec": spec}, namespace=namespace)
    await e2e.client.delete("networking.k8s.io/v1/NetworkPolicy", "kapsa-default-deny", namespace=namespace)
    await e2e.sandbox.exists("networking.k8s.io/v1/NetworkPolicy", "kapsa-default-deny", namespace=namespace)

    async def put_back() -> bool:
        now = [(await e2e.client.get(kind, name, namespace=namespace))["spec"] for kind, name, _ in changed]
        return now == before

    await e2e.sandbox.until(put_back, "all is as before")
    assert (await e2e.ready(PREVIEW)).status.image == ready.status.image


async def test_a_host_that_is_reserved_or_taken_is_refused_by_name(e2e: EndToEnd) -> None:
    await e2e.project(HELM)
    first = await preview(e2e)
    for label, reason in (("www", "HostReserved"), (PREVIEW, "HostTaken")):
        host = f"{label}.{e2e.domain}"
        spec = {
            "projectRef": {"name": "app"},
            "source": {"commitSha": first.spec.source.commit_sha},
            "ingress": {"host": host},
        }
        await e2e.sandbox.apply(Environment, "second", spec, namespace=e2e.home)
        failed = await e2e.reaches("second", lambda each: each.status.phase == "Failed", f"fails for {host}")
        assert failed.status.failure is not None
        assert failed.status.failure.reason == reason
        assert host in failed.status.failure.message
    assert (await e2e.ready(PREVIEW)).status.url == first.status.url
    assert await e2e.hosts() == [f"{PREVIEW}.{e2e.domain}"]


@pytest.mark.real
async def test_under_a_quota_pods_that_ask_for_nothing_are_admitted(e2e: EndToEnd) -> None:
    quota = {"cpu": "200m", "memory": "256Mi", "pods": 2}
    await e2e.project(MANIFESTS, resources={"defaultQuota": quota})
    await preview(e2e)
    await e2e.ready(PREVIEW, commit=await push(e2e, "two"))
    namespace = e2e.namespace_of(PREVIEW)
    pod = (await e2e.client.list("v1/Pod", namespace=namespace)).items[0]
    half = {"cpu": "100m", "memory": "128Mi"}
    resources = pod["spec"]["containers"][0]["resources"]
    assert all(resources[kind].items() >= half.items() for kind in ("limits", "requests"))

    async def counted() -> bool:
        quota = await e2e.client.get("v1/ResourceQuota", "kapsa-quota", namespace=namespace)
        return bool(quota["status"].get("used", {}).get("pods") == "1")

    await e2e.sandbox.until(counted, "the quota counts the pod")


@pytest.mark.real
async def test_an_update_that_has_no_room_in_the_quota_says_so_and_the_old_version_serves(
    e2e: EndToEnd,
) -> None:
    await e2e.project(MANIFESTS, resources={"defaultQuota": {"pods": 1}})
    serving = await preview(e2e)
    second = await push(e2e, "two")
    failed = await e2e.reaches(PREVIEW, lambda each: each.status.phase == "Failed", "has failed")
    failure = failed.status.failure
    assert failure is not None
    assert (failure.step, failure.reason) == ("apply", "QuotaExceeded")
    assert failure.object == "Deployment from-manifests"
    assert "room for the old and the new" in failure.hint
    (pod,) = (await e2e.client.list("v1/Pod", namespace=e2e.namespace_of(PREVIEW))).items
    assert pod["spec"]["containers"][0]["image"] == serving.status.image
    await e2e.project(MANIFESTS, resources={"defaultQuota": {"pods": 2}})
    await e2e.ready(PREVIEW, commit=second, seconds=200)
