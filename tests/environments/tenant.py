"""A team with a project: the environments operator on a stage, with the world outside in memory."""

from __future__ import annotations

import random
from typing import Any

from kapsa.environments.controllers.environment import EnvironmentController
from kapsa.environments.controllers.project import ProjectController
from kapsa.environments.metrics import EnvironmentMetrics
from kapsa.environments.names import namespace_name
from kapsa.environments.ports import Builds
from kapsa.environments.resources import Environment, Project
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

__all__ = ["BUILD", "Outside", "Tenant", "image", "operator", "secret"]

REPOSITORY = "https://git.example.com/org/app"
BUILD = {
    "build": {"strategy": "dockerfile"},
    "registry": {"imageRepository": "registry.example.com/org/app"},
    "deployment": {"type": "image"},
}
"""What makes a project build its image."""


def image(commit: str) -> str:
    """The image that such a project has of a commit."""
    return f"registry.example.com/org/app:{commit_of(commit)}"


class Outside:
    """Everything outside the cluster."""

    def __init__(self) -> None:
        self.git = FakeGit()
        self.images = FakeImages()
        self.builds: Builds = FakeBuilds(self.images)
        self.renderer = FakeRenderer()
        self.domains = FakeDomains()
        self.prober = FakeProber()


def operator(outside: Outside, settings: Settings | None = None) -> Operator:
    """The two controllers with this world around them; new ones each time, as a new process has them."""
    settings = settings or Settings()
    metrics, access = EnvironmentMetrics(), RepositoryAccess()
    listings = Listings(outside.git, access, metrics)
    environments = EnvironmentController(
        settings,
        listings=listings,
        commits=outside.git,
        access=access,
        renderer=outside.renderer,
        builds=outside.builds,
        images=outside.images,
        domains=outside.domains,
        prober=outside.prober,
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
    """Its namespace is the stage's; its project is called app."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.client = sandbox.client
        self.clock = sandbox.clock
        self.outside = Outside()
        self.name = sandbox.namespace
        self.home = namespace_name(self.name, "app")
        self.settings = Settings()

    def place(self, environment: str) -> str:
        """The namespace of an environment."""
        return namespace_name(self.name, "app", environment)

    async def start(self, settings: Settings | None = None) -> None:
        if settings is not None:
            self.settings = settings
        await self.sandbox.start(operator(self.outside, self.settings))

    async def restart(self) -> None:
        await self.sandbox.harness.kill()
        await self.start()

    async def project(self, **spec: Any) -> Project:
        """Ask for the project, and wait for the namespace of its environments."""
        wanted = {
            "source": {"repositoryUrl": REPOSITORY},
            "deployment": {"type": "manifest", "path": "deploy"},
            **spec,
        }
        made: Project = await self.sandbox.apply(Project, "app", wanted)
        await self.sandbox.exists("v1/Namespace", self.home)
        return made

    async def environment(self, name: str = "one", commit: str = "one", **spec: Any) -> Environment:
        """Ask for an environment, as the web application does."""
        wanted = {
            "projectRef": {"name": "app"},
            "source": {"commitSha": commit_of(commit)},
            **spec,
        }
        made: Environment = await self.sandbox.apply(Environment, name, wanted, namespace=self.home)
        return made

    async def get(self, name: str = "one") -> Environment:
        found: Environment = await self.client.get(Environment, name, namespace=self.home)
        return found

    async def ready(self, name: str = "one", *, seconds: float = 120) -> Environment:
        return await self.reaches(name, "Ready", "True", seconds=seconds)

    async def reaches(
        self, name: str, condition: str, status: str, reason: str = "", *, seconds: float = 120
    ) -> Environment:
        """Wait until an environment has this condition about its present spec."""
        seen: list[Any] = []

        async def holds() -> Any:
            found = await self.sandbox.get(Environment, name, namespace=self.home)
            if found is None:
                return None
            seen[:] = [found.status.conditions, found.status.failure]
            current = found.status.condition(condition)
            fits = (
                current is not None
                and current.status == status
                and reason in ("", current.reason)
                and found.status.observed_generation == found.metadata.generation
            )
            return found if fits else None

        try:
            reached: Environment = await self.sandbox.until(
                holds, f"{name} has {condition}={status} {reason}", seconds=seconds
            )
        except AssertionError as error:
            raise AssertionError(f"{error}; last seen {seen}") from None
        return reached

    async def project_now(self) -> Project:
        found: Project = await self.client.get(Project, "app", namespace=self.name)
        return found


async def secret(tenant: Tenant, name: str, namespace: str, **values: str) -> None:
    """Have a person put a Secret there."""
    manifest = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "stringData": values,
    }
    await tenant.client.apply(manifest, field_manager="person", force=True)
