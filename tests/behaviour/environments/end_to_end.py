"""The whole operator with a real git server and registry, helm and kustomize, and fake controllers."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from kapsa.adapters.git.client import Git, Refs
from kapsa.adapters.git.credentials import GitCredentials
from kapsa.adapters.http.client import GuardedHttpClient
from kapsa.adapters.testing.git_server import GitRepository
from kapsa.adapters.testing.registry_server import RegistryServer
from kapsa.environments.names import MANAGED_BY, OPERATOR, namespace_name
from kapsa.environments.operator import ExternalSystems, make_operator
from kapsa.environments.ports import RefLister
from kapsa.environments.resources import DomainPool, Environment, Project, Registry
from kapsa.environments.settings import Settings
from kapsa.environments.sources.poll_schedule import POLL_REQUESTED
from kapsa.environments.testing.simulated_builds import BuildPods, SimulatedBuildPods, SimulatedBuilds
from kapsa.runtime import Client, ClientError, NotFound, Operator
from tests.adapters.servers.threaded_http_client import ThreadedHttpClient
from tests.environments.fake_controllers import (
    CERTIFICATE,
    CertManager,
    UnscheduledPods,
    certificate_definition,
    closed_nodes,
)
from tests.environments.sandbox import Sandbox
from tests.environments.service_account import act_as_service_account

__all__ = ["EndToEnd", "with_controllers"]

LOGIN = ("builder", "a-very-secret-word")


class EndToEnd:
    """A tenant with a project called app, from its repository to its hosts."""

    def __init__(
        self, sandbox: Sandbox, repository: GitRepository, registry: RegistryServer, directory: Path
    ) -> None:
        self.sandbox = sandbox
        self.client = sandbox.client
        self.repository = repository
        self.registry = registry
        self.domain = f"{sandbox.unique}.example.com"
        self.settings = Settings(
            namespace=f"kapsa-{sandbox.unique}",
            build_namespace=f"builds-{sandbox.unique}",
            cache_directory=directory / "cache",
            git_protocols=("http",),
            leader_election=False,
            deletion_report_after=10,
        )
        self.home = namespace_name(sandbox.namespace, "app")
        self.builder = self._builder()
        self.cert_manager = CertManager(self.client, self.domain, self.settings.preview_domain)
        self.listings = 0
        """The number of listings of the repository."""
        self._directory = directory
        self._polls = 0

    def _builder(self) -> SimulatedBuilds:
        def read(commit: str, path: str) -> str:
            return self.repository.git("show", f"{commit}:{path}")

        cluster, namespace = self.sandbox.harness.cluster, self.settings.build_namespace
        pods: BuildPods = (
            SimulatedBuildPods(cluster.workloads, seconds=0)
            if cluster.engine == "embedded"
            else UnscheduledPods(self.client, namespace)
        )
        return SimulatedBuilds(self.client, pods, self.registry, read, namespace=namespace)

    @contextlib.asynccontextmanager
    async def failing_builds(self) -> AsyncIterator[None]:
        """Expect only failing builds in this block."""
        if self.sandbox.harness.cluster.engine == "embedded":
            yield
        else:
            async with closed_nodes(self.client):
                yield

    # -- the operator ----------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def operator(self, git: Git | None = None) -> AsyncIterator[None]:
        """Run the operator in this block, on the real engine with its own service account."""
        embedded = self.sandbox.harness.cluster.engine == "embedded"
        connections = GuardedHttpClient(address_guard=None)
        http = ThreadedHttpClient() if embedded else connections
        systems = ExternalSystems.of(self.settings, http, address_guard=None, git=git)
        systems.git = _Counted(systems.git, self)
        operator = make_operator(self.settings, systems, rng=random.Random(1))
        try:
            if embedded:
                await self.sandbox.start(operator)
                yield
                await self.sandbox.harness.stop()
            else:
                async with self._as_service_account(operator):
                    yield
        finally:
            await connections.close()

    @contextlib.asynccontextmanager
    async def _as_service_account(self, operator: Operator) -> AsyncIterator[None]:
        cluster = self.sandbox.harness.cluster
        kubeconfig = await act_as_service_account(cluster, operator, self.settings, self._directory)
        async with Client.connect(kubeconfig=kubeconfig) as client, operator.running(client, serve=False):
            yield

    async def prepare(self) -> None:
        """Install the CRD of Certificates, the namespaces of the operator, and the registry's credentials."""
        await self.client.apply(certificate_definition(), force=True)
        await self.sandbox.make_namespace(self.settings.namespace)
        await self.sandbox.make_namespace(self.settings.build_namespace, **{MANAGED_BY: OPERATOR})
        await self.sandbox.until(self._certificates_served, "Certificates are served")
        self.registry.login = LOGIN
        await self.secret("registry", self.settings.namespace, {"username": LOGIN[0], "password": LOGIN[1]})
        await self.secret(
            "registry-pull", self.settings.namespace, {"username": "reader", "password": "read"}
        )

    async def _certificates_served(self) -> bool:
        try:
            await self.client.list(CERTIFICATE)
        except ClientError:
            return False
        return True

    async def secret(self, name: str, namespace: str, values: Mapping[str, str]) -> None:
        manifest = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": namespace},
            "stringData": dict(values),
        }
        await self.client.apply(manifest, field_manager="person", force=True)

    # -- what people write -----------------------------------------------------------------------------------

    async def pool(self) -> None:
        spec = {
            "baseDomains": [self.domain],
            "certManager": {"issuerRef": {"name": "letsencrypt"}},
            "allocationPolicy": {"reservedSubdomains": ["www"]},
        }
        await self.sandbox.apply(DomainPool, self.sandbox.unique, spec)

    async def registry_resource(self) -> None:
        login = {"name": "registry", "namespace": self.settings.namespace}
        spec = {
            "endpoint": self.registry.endpoint,
            "insecure": True,
            "auth": {"secretRef": login},
            "imagePullSecret": {"secretRef": {**login, "name": "registry-pull"}},
            "repositories": [{"prefixes": ["team"]}],
            "imageRetention": "delete",
        }
        await self.sandbox.apply(Registry, self.sandbox.unique, spec)
        await self.sandbox.condition(Registry, self.sandbox.unique)

    async def project(self, deployment: Mapping[str, Any], **more: Any) -> None:
        spec = {
            "source": {"repositoryUrl": self.repository.url, "pollInterval": "24h"},
            "deployment": dict(deployment),
            "build": {"strategy": "dockerfile"},
            "registry": {"name": self.sandbox.unique, "imageRepository": "team/app"},
            "domain": {"domainPoolRef": {"name": self.sandbox.unique}},
            "resources": {"defaultQuota": {"cpu": "2", "memory": "2Gi", "pods": 10}},
            "previewEnvironments": {"enabled": True},
            **more,
        }
        await self.sandbox.apply(Project, "app", spec)

    async def abandon(self) -> None:
        """Delete everything that another operator on the same cluster would reconcile."""
        for kind, namespace in ((Environment, self.home), (Project, self.sandbox.namespace)):
            for resource in (await self.client.list(kind, namespace=namespace)).items:
                with contextlib.suppress(NotFound):
                    await self.client.delete(kind, resource.name, namespace=namespace)
                    freed = {"metadata": {"finalizers": None}}
                    await self.client.patch(kind, resource.name, freed, namespace=namespace)
        for kind in (DomainPool, Registry):
            with contextlib.suppress(NotFound):
                await self.client.delete(kind, self.sandbox.unique)
                await self.client.patch(kind, self.sandbox.unique, {"metadata": {"finalizers": None}})

    async def poll(self) -> None:
        """Request a poll, as a webhook does, and wait until it is done."""
        self._polls += 1
        await self.listed()
        before = self.listings
        asked = {"metadata": {"annotations": {POLL_REQUESTED: str(self._polls)}}}
        await self.client.patch(Project, "app", asked, namespace=self.sandbox.namespace)

        await self.listed(before)

    async def listed(self, before: int = 0) -> None:
        """Wait until the repository is listed again."""

        async def holds() -> bool:
            return self.listings > before

        await self.sandbox.until(holds, "the repository is listed")

    async def update(self, kind: Any, name: str, spec: Mapping[str, Any], *, namespace: str = "") -> None:
        """Change part of a spec."""
        await self.client.patch(
            kind, name, {"spec": dict(spec)}, namespace=namespace or self.sandbox.namespace
        )

    # -- what there is ---------------------------------------------------------------------------------------

    def namespace_of(self, environment: str) -> str:
        return namespace_name(self.sandbox.namespace, "app", environment)

    async def environment(self, name: str) -> Environment | None:
        environment: Environment | None = await self.sandbox.get(Environment, name, namespace=self.home)
        return environment

    async def ready(self, name: str, *, commit: str = "", seconds: float = 90) -> Environment:
        """Wait until an environment is ready, with this commit if one is named."""

        def is_ready(environment: Environment) -> bool:
            return environment.status.is_true("Ready") and commit in ("", environment.status.commit_sha)

        return await self.reaches(name, is_ready, f"is ready {commit}", seconds=seconds)

    async def reaches(
        self, name: str, right: Callable[[Environment], bool], what: str, *, seconds: float = 90
    ) -> Environment:
        """Wait until an environment's status for its current spec is as expected."""
        seen: list[Any] = []

        async def holds() -> Environment | None:
            environment = await self.environment(name)
            seen[:] = [environment.status] if environment is not None else []
            if (
                environment is None
                or environment.status.observed_generation != environment.metadata.generation
            ):
                return None
            return environment if right(environment) else None

        try:
            reached: Environment = await self.sandbox.until(holds, f"{name} {what}", seconds=seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}; last seen {seen}") from None
        return reached

    async def images(self, environment: str) -> dict[str, str]:
        """Return the images of its Deployments, by the name of the Deployment."""
        deployments = await self.client.list("apps/v1/Deployment", namespace=self.namespace_of(environment))
        return {
            each["metadata"]["name"]: each["spec"]["template"]["spec"]["containers"][0]["image"]
            for each in deployments.items
        }

    async def serves(self, environment: str, images: Mapping[str, str | None], *, service: str) -> None:
        """Wait until it has exactly these Deployments, and its host routes to this Service."""

        async def holds() -> bool:
            return await self.images(environment) == images and await self._backend(environment) == service

        await self.sandbox.until(holds, f"{environment} runs {images}")

    async def _backend(self, environment: str) -> str:
        namespace = self.namespace_of(environment)
        ingress = await self.client.get("networking.k8s.io/v1/Ingress", "kapsa", namespace=namespace)
        (rule,) = ingress["spec"]["rules"]
        name: str = rule["http"]["paths"][0]["backend"]["service"]["name"]
        return name

    async def volumes(self, environment: str) -> list[str]:
        """Return the volumes of its claims, once all are bound."""

        async def bound() -> list[str]:
            claims = await self.client.list(
                "v1/PersistentVolumeClaim", namespace=self.namespace_of(environment)
            )
            names = [each["spec"].get("volumeName", "") for each in claims.items]
            return names if all(names) else []

        volumes: list[str] = await self.sandbox.until(bound, "the claims are bound")
        return volumes

    async def missed(self, environment: str) -> None:
        """Wait until the project's status counts one listing without the branch of this preview."""

        async def holds() -> bool:
            project: Project = await self.client.get(Project, "app", namespace=self.sandbox.namespace)
            return [each.missing for each in project.status.tracked if each.name == environment] == [1]

        await self.sandbox.until(holds, f"the branch of {environment} is missed")

    async def hosts(self) -> list[str]:
        """Return the allocated hosts."""
        pool: DomainPool = await self.client.get(DomainPool, self.sandbox.unique)
        return sorted(each.host for each in pool.status.allocations)


class _Counted:
    """A counter of listings."""

    def __init__(self, git: RefLister, e2e: EndToEnd) -> None:
        self._git = git
        self._life = e2e

    async def ls_remote(self, url: str, credentials: GitCredentials | None = None) -> Refs:
        refs = await self._git.ls_remote(url, credentials)
        self._life.listings += 1
        return refs


@contextlib.asynccontextmanager
async def with_controllers(e2e: EndToEnd) -> AsyncIterator[EndToEnd]:
    """Run the fake controllers in this block."""
    await e2e.prepare()
    cert_manager = asyncio.create_task(e2e.cert_manager.work())
    async with e2e.builder.running():
        try:
            yield e2e
        finally:
            cert_manager.cancel()
            (ended,) = await asyncio.gather(cert_manager, return_exceptions=True)
            await e2e.abandon()
    assert isinstance(ended, asyncio.CancelledError), f"cert-manager gave up: {ended}"
