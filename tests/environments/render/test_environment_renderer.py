"""The objects of an Environment, from a real git server through the real tools and the filter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from kapsa.adapters.errors import ExternalError, ExternalNotFound, RenderFailed, Unreachable
from kapsa.adapters.git.client import Git
from kapsa.adapters.git.credentials import GitCredentials
from kapsa.adapters.git.repositories import Repositories
from kapsa.adapters.testing.git_server import GitRepository, GitServer
from kapsa.environments.ports import Rendered, RenderRequest
from kapsa.environments.render.cache import RenderCache
from kapsa.environments.render.environment_renderer import EnvironmentRenderer
from kapsa.environments.render.filter import ObjectsRefused
from kapsa.environments.render.renderer import Renderer
from kapsa.environments.resources import Environment, Project
from kapsa.environments.settings import Settings
from kapsa.runtime import SystemClock

NAMESPACE = "team-app-pr-7"
HOST = "pr-7.example.com"
IMAGE = "registry.example.com/team/app@sha256:" + "a" * 64
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: IMAGE}]}
"""
CHART = {
    "chart/Chart.yaml": "apiVersion: v2\nname: app\nversion: 0.1.0\n",
    "chart/templates/a.yaml": DEPLOYMENT.replace(
        "IMAGE", '"{{ .Values.image.repository }}:{{ .Values.image.tag }}"'
    ).replace("name: web}\nspec", "name: {{ .Release.Name }}{{ .Values.suffix }}}\nspec"),
}
FILES: dict[str, Any] = {
    **CHART,
    "plain/app.yaml": DEPLOYMENT.replace("IMAGE", "app:dev"),
    "overlay/kustomization.yaml": "resources: [../base]\n",
    "base/kustomization.yaml": "resources: [app.yaml]\n",
    "base/app.yaml": DEPLOYMENT.replace("IMAGE", "app:dev"),
}


class SteppedClock(SystemClock):
    """A clock that stands still until it is moved."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def environments(tmp_path: Path, clock: SteppedClock) -> EnvironmentRenderer:
    git = Git(protocols=["http"], timeout=20)
    cache = RenderCache(refusal_seconds=300, clock=clock)
    return EnvironmentRenderer(
        Repositories(tmp_path / "cache", git), Renderer(timeout=30), Settings(), cache=cache
    )


def request(
    repository: GitRepository,
    commit: str,
    *,
    pull_request: int | None = None,
    credentials: GitCredentials | None = None,
    image: str | None = IMAGE,
    **deployment: Any,
) -> RenderRequest:
    project = {
        "metadata": {"name": "app", "namespace": "team"},
        "spec": {"source": {"repositoryUrl": repository.url}, "deployment": deployment},
    }
    source: dict[str, Any] = {"commitSha": commit}
    if pull_request is not None:
        source["prNumber"] = pull_request
    environment = {
        "metadata": {"name": "pr-7", "namespace": "team-app"},
        "spec": {
            "projectRef": {"name": "app"},
            "source": source,
            "config": {"envVars": [{"name": "MODE", "value": "preview"}]},
        },
    }
    return RenderRequest(
        environment=Environment.from_dict(environment),
        project=Project.from_dict(project),
        commit=commit,
        namespace=NAMESPACE,
        credentials=credentials,
        image=image,
        host=HOST,
    )


@pytest.mark.parametrize(
    ("deployment", "name"),
    [
        ({"type": "helm", "path": "chart", "values": {"suffix": "-x"}}, "app-x"),
        ({"type": "kustomize", "path": "overlay"}, "web"),
        ({"type": "manifest", "path": "plain"}, "web"),
        ({"type": "image"}, "app"),
    ],
)
async def test_each_type_of_deployment_runs_the_image_in_the_environments_namespace(
    environments: EnvironmentRenderer, git_repository: GitRepository, deployment: dict[str, Any], name: str
) -> None:
    commit = git_repository.commit(FILES)
    rendered = (await environments.render(request(git_repository, commit, **deployment))).objects
    (deployment,) = (each for each in rendered if each["kind"] == "Deployment")
    assert deployment["metadata"]["name"] == name
    assert {each["metadata"]["namespace"] for each in rendered} == {NAMESPACE}
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == IMAGE


async def test_exactly_the_commit_is_rendered_whatever_its_branch_is_at(
    environments: EnvironmentRenderer, git_repository: GitRepository
) -> None:
    old = git_repository.commit(FILES)
    git_repository.commit({"plain/app.yaml": DEPLOYMENT.replace("{name: web}\nspec", "{name: newer}\nspec")})
    (manifest,) = (
        await environments.render(request(git_repository, old, type="manifest", path="plain"))
    ).objects
    assert manifest["metadata"]["name"] == "web"


async def test_a_commit_that_only_a_pull_request_leads_to_is_rendered(
    environments: EnvironmentRenderer, git_repository: GitRepository
) -> None:
    commit = git_repository.pull_request(7, FILES)
    asked = request(git_repository, commit, pull_request=7, type="manifest", path="plain")
    assert len((await environments.render(asked)).objects) == 1


async def test_a_cached_result_is_neither_fetched_nor_rendered_again(
    environments: EnvironmentRenderer, git_server: GitServer, git_repository: GitRepository
) -> None:
    template = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {r: '{{ randAlphaNum 20 }}'}\n"
    commit = git_repository.commit({**CHART, "chart/templates/a.yaml": template})
    asked = request(git_repository, commit, type="helm", path="chart")
    first = (await environments.render(asked)).objects
    first[0]["data"]["kept"] = "a change by the caller"
    fetched = len(git_server.requests)
    git_repository.path.rename(git_repository.path.with_name("gone.git"))
    second = (await environments.render(asked)).objects
    assert second[0]["data"] == {"r": first[0]["data"]["r"]}
    assert len(git_server.requests) == fetched
    with_values = request(git_repository, commit, type="helm", path="chart", values={"a": 1})
    assert (await environments.render(with_values)).objects[0]["data"] != second[0]["data"]


async def test_another_commit_path_or_type_is_rendered_separately(
    environments: EnvironmentRenderer, git_repository: GitRepository
) -> None:
    def config_map(text: str) -> str:
        return f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\ndata: {{text: {text}}}\n"

    files = {
        "one/a.yaml": config_map("first"),
        "two/a.yaml": config_map("elsewhere"),
        "one/b/a.yaml": config_map("below"),
    }
    first = git_repository.commit({**files, "one/b/kustomization.yaml": "resources: [a.yaml]\n"})
    second = git_repository.commit({"one/a.yaml": config_map("second")})
    cases: list[tuple[str, dict[str, Any], str]] = [
        (first, {"type": "manifest", "path": "one"}, "first"),
        (second, {"type": "manifest", "path": "one"}, "second"),
        (first, {"type": "manifest", "path": "two"}, "elsewhere"),
        (first, {"type": "kustomize", "path": "one/b"}, "below"),
        (first, {"type": "manifest", "path": "one"}, "first"),
    ]
    for commit, deployment, text in cases:
        (manifest,) = (
            await environments.render(request(git_repository, commit, image=None, **deployment))
        ).objects
        assert manifest["data"] == {"text": text}
    with pytest.raises(RenderFailed, match="is a kustomization"):
        await environments.render(request(git_repository, first, image=None, type="manifest", path="one/b"))


async def test_the_cache_has_a_limit_and_evicts_the_least_recently_used(clock: SteppedClock) -> None:
    made: list[str] = []
    size = len(msgspec.json.encode(Rendered(({"kind": "a"},))))
    cache = RenderCache(max_bytes=2 * size, clock=clock)

    async def get(key: str) -> None:
        async def make() -> Rendered:
            made.append(key)
            return Rendered(({"kind": key},))

        assert (await cache.get(key, make)).objects[0]["kind"] == key

    for key in ("a", "b", "a", "c", "a", "b"):
        await get(key)
    assert made == ["a", "b", "c", "b"]


async def test_the_result_of_one_tenant_is_not_returned_to_another(
    environments: EnvironmentRenderer, git_server: GitServer
) -> None:
    private = git_server.repository("team/private")
    commit = private.commit(FILES)
    git_server.login = ("robot", "a-password")
    valid = GitCredentials(username="robot", password="a-password")
    deployment: Any = {"type": "manifest", "path": "plain"}
    assert (await environments.render(request(private, commit, credentials=valid, **deployment))).objects
    for credentials in (None, GitCredentials(username="robot", password="wrong")):
        with pytest.raises(ExternalError):
            await environments.render(request(private, commit, credentials=credentials, **deployment))


async def test_refusals_are_cached_for_a_while_and_other_errors_are_not(
    environments: EnvironmentRenderer,
    git_server: GitServer,
    git_repository: GitRepository,
    clock: SteppedClock,
) -> None:
    commit = git_repository.commit(CHART)
    broken = git_repository.commit({**CHART, "chart/templates/a.yaml": "{{ fail (randAlphaNum 20) }}\n"})
    asked = request(git_repository, broken, type="helm", path="chart")
    messages = []
    for seconds in (0, 299, 301):
        clock.seconds = seconds
        with pytest.raises(RenderFailed) as error:
            await environments.render(asked)
        messages.append(str(error.value))
    assert messages[0] == messages[1] != messages[2]
    git_server.failures.append(503)
    with pytest.raises(Unreachable):
        await environments.render(request(git_repository, commit, type="manifest", path="plain"))
    with pytest.raises(ExternalNotFound):
        await environments.render(request(git_repository, commit, type="manifest", path="plain"))


async def test_a_chart_with_a_cluster_role_or_another_namespace_is_refused_by_name(
    environments: EnvironmentRenderer, git_repository: GitRepository
) -> None:
    roles = (
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: everything}\n---\n"
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: elsewhere, namespace: kube-system}\n"
    )
    commit = git_repository.commit({**CHART, "chart/templates/b.yaml": roles})
    with pytest.raises(ObjectsRefused) as error:
        await environments.render(request(git_repository, commit, type="helm", path="chart"))
    assert [each.object for each in error.value.refusals] == ["ConfigMap elsewhere", "ClusterRole everything"]
    assert "'kube-system'" in str(error.value)


async def test_warnings_are_returned_every_time(
    environments: EnvironmentRenderer, git_repository: GitRepository
) -> None:
    hook = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: migrate, annotations: {helm.sh/hook: pre-install}}\n"
    commit = git_repository.commit({**CHART, "chart/templates/b.yaml": hook})
    for _ in range(2):
        rendered = await environments.render(request(git_repository, commit, type="helm", path="chart"))
        assert rendered.warnings == (
            "Job migrate is a Helm hook, which is not run",
            "no container of the chart sets MODE: use .Values.env in its templates",
        )


async def test_the_restricted_standard_applies_to_repositories_and_to_generated_objects(
    tmp_path: Path, git_repository: GitRepository
) -> None:
    restricted = EnvironmentRenderer(
        Repositories(tmp_path / "cache", Git(protocols=["http"], timeout=20)),
        Renderer(timeout=30),
        Settings(pod_security="restricted"),
    )
    commit = git_repository.commit(FILES)
    with pytest.raises(ObjectsRefused, match=r"Deployment web: container web: .*runAsNonRoot is not true"):
        await restricted.render(request(git_repository, commit, type="manifest", path="plain"))
    assert (await restricted.render(request(git_repository, commit, type="image"))).objects


@pytest.mark.parametrize("kind", ["helm", "manifest"])
async def test_a_repository_with_nothing_to_deploy_at_its_root_is_called_the_repository(
    environments: EnvironmentRenderer, git_repository: GitRepository, kind: str
) -> None:
    commit = git_repository.commit({"README": "nothing"})
    with pytest.raises(RenderFailed, match="repository"):
        await environments.render(request(git_repository, commit, type=kind))
