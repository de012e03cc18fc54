"""The examples of the specifications reach Ready unchanged, as does a web application's Environment."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from kapsa.adapters.git.address import RepositoryAddress
from kapsa.adapters.git.client import Git
from kapsa.adapters.testing.git_server import GitRepository
from kapsa.adapters.testing.registry_server import RegistryServer
from kapsa.environments.resources import Environment, PreviewEnvironment, Project
from tests.behaviour.environments.end_to_end import EndToEnd, with_controllers
from tests.behaviour.environments.seed_examples import COMMIT, ENVIRONMENT, FILES, PREVIEW, PROJECT
from tests.environments.sandbox import Sandbox

pytestmark = pytest.mark.timeout(300)


class AtHome(Git):
    """A git client that redirects the repository of the examples to the test's server."""

    def __init__(self, repository: GitRepository) -> None:
        super().__init__(protocols=["http"])
        self._repository = repository

    def address(self, url: str) -> RepositoryAddress:
        at_home = url in ("https://github.com/org/repo", self._repository.url)
        return super().address(self._repository.url if at_home else url)


@pytest_asyncio.fixture
async def e2e(
    sandbox: Sandbox, git_repository: GitRepository, registry_server: RegistryServer, tmp_path: Path
) -> AsyncIterator[EndToEnd]:
    git_repository.force_push(FILES)
    made = EndToEnd(sandbox, git_repository, registry_server, tmp_path)
    async with with_controllers(made), made.operator(AtHome(git_repository)):
        yield made


async def apply(e2e: EndToEnd, text: str) -> dict[str, Any]:
    """Apply a manifest, as kubectl does."""
    manifest: dict[str, Any] = yaml.safe_load(text)
    await e2e.client.apply(manifest, field_manager="kubectl", field_validation="Strict")
    return manifest


async def test_the_projects_and_environments_examples_reach_ready(e2e: EndToEnd) -> None:
    push_example_commit(e2e.repository)
    await e2e.sandbox.make_namespace("my-team")
    await apply(e2e, PROJECT)
    await e2e.sandbox.exists("v1/Namespace", "my-team-my-project", namespace="")
    await apply(e2e, ENVIRONMENT)
    e2e.home = "my-team-my-project"
    ready = await e2e.ready("pr-123")
    assert ready.status.commit_sha is not None
    assert ready.status.commit_sha.startswith("a1b2c3d4")
    assert ready.status.url == "https://pr-123.preview.catalyst.dev"
    assert ready.status.namespace is not None
    namespace = ready.status.namespace.name
    assert namespace == "my-team-my-project-pr-123"
    (web,) = (await e2e.client.list("apps/v1/Deployment", namespace=namespace)).items
    (container,) = web["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.cluster.local/org/repo:latest"
    not_built = ready.status.condition("BuildReady")
    assert not_built is not None
    assert not_built.reason == "NotBuilt"
    assert "set build and registry.imageRepository of the Project" in not_built.message
    assert "registry.cluster.local/org/repo" in not_built.message
    deployed = ready.status.condition("DeploymentReady")
    assert deployed is not None
    assert "registry.cluster.local/org/repo:latest is the same for every commit" in deployed.message
    assert container["env"] == [{"name": "DEBUG", "value": "true"}]
    quota = await e2e.client.get("v1/ResourceQuota", "kapsa-quota", namespace=namespace)
    assert quota["spec"]["hard"]["limits.memory"] == "2Gi"
    project: Project = await e2e.client.get(Project, "my-project", namespace="my-team")
    assert project.status.is_true("Ready")
    builds = project.status.condition("BuildSucceeded")
    assert builds is not None
    assert (builds.status, builds.reason) == ("Unknown", "NotBuilt")
    assert [(each.name, each.ready) for each in project.status.environments] == [("pr-123", True)]
    await e2e.client.delete(Project, "my-project", namespace="my-team")
    await e2e.sandbox.gone(Project, "my-project", namespace="my-team", seconds=120)


def push_example_commit(repository: GitRepository) -> None:
    """Push the example's commit to its branch: its name begins with a1b2c3d4."""
    tree = repository.git("rev-parse", "main^{tree}")
    content = COMMIT.replace("TREE", tree).encode()
    commit = repository.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=content)
    assert commit.startswith("a1b2c3d4"), "the files of the example were changed"
    repository.git("update-ref", "refs/heads/feature/login", commit)


async def test_the_preview_environments_example_reaches_ready(e2e: EndToEnd) -> None:
    await e2e.sandbox.make_namespace("preview-environments")
    await apply(e2e, PREVIEW)

    async def ready() -> PreviewEnvironment | None:
        resource: PreviewEnvironment = await e2e.client.get(
            PreviewEnvironment, "pr-42-env", namespace="preview-environments"
        )
        return resource if resource.status.is_true("Ready") else None

    made = await e2e.sandbox.until(ready, "the preview is ready")
    assert made.status.url == "https://pr-42.preview.orimatest.com"
    await e2e.client.delete(PreviewEnvironment, "pr-42-env", namespace="preview-environments")
    await e2e.sandbox.gone(PreviewEnvironment, "pr-42-env", namespace="preview-environments")


async def test_the_web_application_creates_polls_updates_and_deletes_an_environment(e2e: EndToEnd) -> None:
    first = e2e.repository.commit({"src/page": "one"}, branch="topic")
    second = e2e.repository.commit({"src/page": "two"}, branch="topic")
    await e2e.pool()
    source = {"repositoryUrl": e2e.repository.url}
    deployment = {"type": "helm", "path": "charts/app"}
    domain = {"domainPoolRef": {"name": e2e.sandbox.unique}}
    await e2e.sandbox.apply(Project, "app", {"source": source, "deployment": deployment, "domain": domain})
    await e2e.sandbox.exists("v1/Namespace", e2e.home, namespace="")
    spec = {"projectRef": {"name": "app"}, "type": "development", "source": {"commitSha": first}}
    manifest = {
        "apiVersion": Environment.api_version,
        "kind": "Environment",
        "metadata": {"name": "topic", "namespace": e2e.home},
        "spec": spec,
    }
    await e2e.client.create(manifest)
    phases = await phases_until_ready(e2e, first)
    assert phases[-1] == "Ready"
    assert set(phases) <= {"Pending", "Building", "Deploying", "Ready"}
    await e2e.update(Environment, "topic", {"source": {"commitSha": second}}, namespace=e2e.home)
    await phases_until_ready(e2e, second)
    await e2e.client.delete(Environment, "topic", namespace=e2e.home)
    await e2e.sandbox.gone(Environment, "topic", namespace=e2e.home)
    assert await e2e.sandbox.get("v1/Namespace", e2e.namespace_of("topic"), namespace="") is None
    assert await e2e.hosts() == []


async def phases_until_ready(e2e: EndToEnd, commit: str) -> list[str]:
    """Poll the status as a web application does, until this commit is Ready."""
    phases: list[str] = []

    async def ready() -> bool:
        topic = await e2e.environment("topic")
        assert topic is not None
        if topic.status.phase and topic.status.phase not in phases[-1:]:
            phases.append(topic.status.phase)
        return topic.status.phase == "Ready" and topic.status.commit_sha == commit

    await e2e.sandbox.until(ready, f"topic is ready at {commit}")
    return phases
