"""A tenant with a project: the environments operator in a sandbox, with fakes for the ports."""

from __future__ import annotations

import random
from typing import Any

from kapsa.environments.controllers.environment import EnvironmentController
from kapsa.environments.controllers.project import ProjectController
from kapsa.environments.metrics import EnvironmentMetrics
from kapsa.environments.names import namespace_name
from kapsa.environments.ports import Builds
from kapsa.environments.resources import Environment, Project, Registry
from kapsa.environments.settings import Settings
from kapsa.environments.sources.listings import Listings
from kapsa.environments.sources.repository_access import RepositoryAccess
from kapsa.runtime import Operator
from tests.environments.fakes import (
    FakeBuilds,
    FakeDomains,
    FakeGit,
    FakeImages,
    FakeProber,
    FakeRenderer,
    commit_of,
)
from tests.environments.sandbox import Sandbox

__all__ = [
    "ALL_REPOSITORIES",
    "BUILD",
    "REPOSITORY",
    "FakeSystems",
    "Tenant",
    "image",
    "operator",
    "secret",
    "shared_registry",
]

REPOSITORY = "https://git.example.com/org/app"
BUILD = {
    "build": {"strategy": "dockerfile"},
    "registry": {"imageRepository": "registry.example.com/org/app"},
    "deployment": {"type": "image"},
}
"""The fields of a Project that builds its image."""
ALL_REPOSITORIES = [{"prefixes": ["*"]}]
"""The rule of a Registry that is open to all."""


def image(commit: str) -> str:
    """Return the image of a commit of such a project."""
    return f"registry.example.com/org/app:{commit_of(commit)}"


class FakeSystems:
    """The fakes of all systems outside the cluster."""

    def __init__(self) -> None:
        self.git = FakeGit()
        self.images = FakeImages()
        self.builds: Builds = FakeBuilds(self.images)
        self.renderer = FakeRenderer()
        self.domains = FakeDomains()
        self.prober = FakeProber()


def operator(systems: FakeSystems, settings: Settings | None = None) -> Operator:
    """Return the two controllers with these fakes, new ones each time, as in a new process."""
    settings = settings or Settings()
    metrics, access = EnvironmentMetrics(), RepositoryAccess()
    listings = Listings(systems.git, systems.git, access, metrics)
    environments = EnvironmentController(
        settings,
        listings=listings,
        commits=systems.git,
        access=access,
        renderer=systems.renderer,
        builds=systems.builds,
        images=systems.images,
        domains=systems.domains,
        prober=systems.prober,
        metrics=metrics,
    )
    projects = ProjectController(settings, listings=listings, metrics=metrics, rng=random.Random(1))
    return Operator(
        controllers=[projects, environments],
        name="kapsa",
        collect=metrics.collect,
        metrics_port=None,
        health_port=None,
    )


class Tenant:
    """A tenant in the namespace of the sandbox, with a project called app."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.client = sandbox.client
        self.clock = sandbox.clock
        self.systems = FakeSystems()
        self.name = sandbox.namespace
        self.home = namespace_name(self.name, "app")
        self.settings = Settings()

    @property
    def admin(self) -> str:
        """The namespace with the Secrets of the administrator."""
        return self.name

    @property
    def registry(self) -> str:
        """The name of the Registry that no other test uses."""
        return self.sandbox.unique

    @property
    def registry_host(self) -> str:
        """The host of that Registry."""
        return f"registry-{self.sandbox.unique}.example.com"

    def namespace_of(self, environment: str) -> str:
        """Return the namespace of an environment."""
        return namespace_name(self.name, "app", environment)

    async def start(self, settings: Settings | None = None) -> None:
        if settings is not None:
            self.settings = settings
        await self.sandbox.start(operator(self.systems, self.settings))

    async def restart(self) -> None:
        await self.sandbox.harness.kill()
        await self.start()

    async def project(self, **spec: Any) -> Project:
        """Apply the project, and wait for the namespace of its environments."""
        desired = {
            "source": {"repositoryUrl": REPOSITORY},
            "deployment": {"type": "manifest", "path": "deploy"},
            **spec,
        }
        made: Project = await self.sandbox.apply(Project, "app", desired)
        await self.sandbox.exists("v1/Namespace", self.home)
        return made

    async def environment(self, name: str = "one", commit: str = "one", **spec: Any) -> Environment:
        """Apply an environment, as a web application does."""
        desired = {
            "projectRef": {"name": "app"},
            "source": {"commitSha": commit_of(commit)},
            **spec,
        }
        made: Environment = await self.sandbox.apply(Environment, name, desired, namespace=self.home)
        return made

    async def get(self, name: str = "one") -> Environment:
        environment: Environment = await self.client.get(Environment, name, namespace=self.home)
        return environment

    async def ready(self, name: str = "one", *, seconds: float = 120) -> Environment:
        return await self.reaches(name, "Ready", "True", seconds=seconds)

    async def reaches(
        self, name: str, condition: str, status: str, reason: str = "", *, seconds: float = 120
    ) -> Environment:
        """Wait until an environment has this condition for its current spec."""
        seen: list[Any] = []

        async def holds() -> Any:
            environment = await self.sandbox.get(Environment, name, namespace=self.home)
            if environment is None:
                return None
            seen[:] = [environment.status.conditions, environment.status.failure]
            current = environment.status.condition(condition)
            fits = (
                current is not None
                and current.status == status
                and reason in ("", current.reason)
                and environment.status.observed_generation == environment.metadata.generation
            )
            return environment if fits else None

        try:
            reached: Environment = await self.sandbox.until(
                holds, f"{name} has {condition}={status} {reason}", seconds=seconds
            )
        except AssertionError as error:
            raise AssertionError(f"{error}; last seen {seen}") from None
        return reached

    async def project_now(self) -> Project:
        project: Project = await self.client.get(Project, "app", namespace=self.name)
        return project


async def secret(tenant: Tenant, name: str, namespace: str, **values: str) -> None:
    """Create a Secret, as a person does."""
    manifest = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "stringData": values,
    }
    await tenant.client.apply(manifest, field_manager="person", force=True)


async def shared_registry(tenant: Tenant, **more: Any) -> None:
    """Create a Registry of an administrator, with one login to push and another one to pull."""
    await secret(tenant, "push", tenant.admin, username="robot", password="word-to-push")
    await secret(tenant, "pull", tenant.admin, username="reader", password="word-to-pull")
    spec = {
        "endpoint": tenant.registry_host,
        "auth": {"secretRef": {"name": "push", "namespace": tenant.admin}},
        "imagePullSecret": {"secretRef": {"name": "pull", "namespace": tenant.admin}},
        **more,
    }
    await tenant.sandbox.apply(Registry, tenant.registry, spec)
