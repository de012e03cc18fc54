"""The composition root: the environments operator, from its settings and its ports.

    kapsa environments run        # this operator, configured by KAPSA_* variables

`make_operator` puts the parts together; tests pass in an `ExternalSystems` with fakes.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from kapsa.adapters.git.client import Git
from kapsa.adapters.git.commit_times import CommitTimes
from kapsa.adapters.git.repositories import Repositories
from kapsa.adapters.http.address_guard import AddressGuard, reject_internal_address
from kapsa.adapters.http.client import GuardedHttpClient, HttpClient
from kapsa.adapters.http.prober import HttpProber
from kapsa.adapters.oci.registries import ImageRegistries, Images
from kapsa.environments.admission import validators
from kapsa.environments.build.engines import BuildEngines
from kapsa.environments.controllers.domain_pool import DomainPoolController
from kapsa.environments.controllers.environment import EnvironmentController
from kapsa.environments.controllers.preview_environment import PreviewEnvironmentController
from kapsa.environments.controllers.project import ProjectController
from kapsa.environments.controllers.registry import RegistryController
from kapsa.environments.hosts.pools import DomainPools
from kapsa.environments.metrics import EnvironmentMetrics
from kapsa.environments.names import OPERATOR
from kapsa.environments.ports import Builds, CommitClock, CommitResolver, ManifestRenderer, Prober, RefLister
from kapsa.environments.render.environment_renderer import EnvironmentRenderer
from kapsa.environments.render.renderer import Renderer
from kapsa.environments.settings import Settings
from kapsa.environments.sources.git_webhook import GitWebhook
from kapsa.environments.sources.listings import Listings
from kapsa.environments.sources.repository_access import RepositoryAccess
from kapsa.environments.sources.webhook_server import GitWebhookServer
from kapsa.runtime import Client, EveryReplica, LeaderElection, Operator, Webhooks

__all__ = ["LEASE", "ExternalSystems", "make_operator", "operator"]

LEASE = "kapsa-operator"
_HOST = "0.0.0.0"  # noqa: S104 - the kubelet, Prometheus and git servers connect from outside the pod


async def _close_nothing() -> None:
    """Do nothing: fakes in memory hold no resources."""


class ExternalSystems(msgspec.Struct, kw_only=True):
    """The systems outside the cluster that the operator uses."""

    git: RefLister
    commit_times: CommitClock
    commits: CommitResolver
    renderer: ManifestRenderer
    builds: Builds
    images: Images
    http: HttpClient
    """The HTTP client for the APIs of registries."""
    prober: Prober
    close: Callable[[], Awaitable[None]] = _close_nothing
    """Called when the operator stops, to release resources such as checkouts."""

    @classmethod
    def of(
        cls,
        settings: Settings,
        http: HttpClient,
        *,
        address_guard: AddressGuard | None = reject_internal_address,
        git: Git | None = None,
    ) -> ExternalSystems:
        """Return the real systems. The guard applies to git unless `git` is given; `http` has its own.
        None disables the guard."""
        git = git or Git(
            protocols=settings.git_protocols,
            timeout=settings.git_timeout,
            max_bytes=settings.git_max_bytes,
            concurrency=settings.git_concurrency,
            address_guard=address_guard,
        )
        repositories = Repositories(settings.cache_directory, git)
        renderer = Renderer(timeout=settings.render_timeout)
        return cls(
            git=git,
            commit_times=CommitTimes(git),
            commits=repositories,
            renderer=EnvironmentRenderer(repositories, renderer, settings),
            builds=BuildEngines(settings),
            images=ImageRegistries(http),
            http=http,
            prober=HttpProber(http),
            close=repositories.close,
        )


def make_operator(
    settings: Settings, systems: ExternalSystems | None = None, *, rng: random.Random | None = None
) -> Operator:
    """Return the operator with these settings, connected to the real systems unless `systems` are given."""
    connections = GuardedHttpClient()
    systems = systems or ExternalSystems.of(settings, connections)
    metrics = EnvironmentMetrics()
    access = RepositoryAccess()
    domains = DomainPools(settings, metrics=metrics, rng=rng)
    listings = Listings(systems.git, systems.commit_times, access, metrics)

    @contextlib.asynccontextmanager
    async def close_on_exit(client: Client) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await systems.close()
            await connections.close()

    @contextlib.asynccontextmanager
    async def git_webhooks(client: Client) -> AsyncIterator[None]:
        assert settings.git_webhook_port is not None
        webhook = GitWebhook(client, settings.git_webhook_secret)
        server = GitWebhookServer(webhook, host=_HOST, port=settings.git_webhook_port)
        await server.start()
        try:
            yield
        finally:
            await server.stop()

    return Operator(
        name=OPERATOR,
        controllers=[
            ProjectController(settings, listings=listings, metrics=metrics, rng=rng),
            EnvironmentController(
                settings,
                listings=listings,
                commits=systems.commits,
                access=access,
                renderer=systems.renderer,
                builds=systems.builds,
                images=systems.images,
                domains=domains,
                prober=systems.prober,
                metrics=metrics,
            ),
            DomainPoolController(),
            RegistryController(settings, systems.http, metrics),
            PreviewEnvironmentController(settings, metrics.previews, domains),
        ],
        leader_election=LeaderElection(name=LEASE, namespace=settings.namespace)
        if settings.leader_election
        else None,
        webhooks=_webhooks(settings),
        collect=metrics.collect,
        companions=[
            close_on_exit,
            *([EveryReplica(git_webhooks)] if settings.git_webhook_port is not None else []),
        ],
        host=_HOST,
        # One port for all: the probes are served there whether or not metrics are.
        metrics_port=settings.metrics_port if settings.metrics_enabled else None,
        health_port=settings.metrics_port,
    )


def _webhooks(settings: Settings) -> Webhooks | None:
    if not settings.webhooks_enabled:
        return None
    return Webhooks(
        *validators(settings),
        service="" if settings.webhook_url else settings.webhook_service,
        url=settings.webhook_url,
        namespace=settings.namespace,
        host=_HOST,
        port=settings.webhook_port,
        cert_dir=settings.webhook_cert_directory,
    )


def operator() -> Operator:
    """Return the operator configured by `KAPSA_*` variables, for `kapsa run` and `kapsa rbac`."""
    return make_operator(Settings.from_environment())
