"""The services of the demo: a cluster, a git server, an image registry, simulated builds and the operator."""

from __future__ import annotations

import base64
import contextlib
import secrets
import shlex
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from kapsa.adapters.http.client import GuardedHttpClient
from kapsa.adapters.testing.git_server import GitRepository, GitServer
from kapsa.adapters.testing.registry_server import RegistryServer
from kapsa.cli.demo import push_hook
from kapsa.cli.demo.display import Display
from kapsa.cli.demo.git_clone import GitClone
from kapsa.devcluster import DevCluster
from kapsa.environments.operator import ExternalSystems, make_operator
from kapsa.environments.resources import KINDS, DomainPool, Registry
from kapsa.environments.settings import Settings
from kapsa.environments.sources.git_webhook import GitWebhook
from kapsa.environments.sources.webhook_server import PATH, GitWebhookServer
from kapsa.environments.testing.sample_application import SAMPLE_APPLICATION
from kapsa.environments.testing.simulated_builds import SimulatedBuildPods, SimulatedBuilds
from kapsa.runtime import Client, custom_resource_definitions
from kapsa.runtime.testing import issue_certificate, make_authority

__all__ = ["DOMAIN", "REGISTRY", "DemoServices", "start_services"]

DOMAIN = "preview.test"
REGISTRY = "local"
_POOL = "previews"
_WILDCARD = "preview-wildcard"
_LOOPBACK = "127.0.0.1"


class DemoServices(msgspec.Struct, frozen=True, kw_only=True):
    """The services that are running."""

    cluster: DevCluster
    client: Client
    repository: GitRepository
    registry: RegistryServer
    clone: GitClone
    webhook: str
    """The URL that the operator receives webhooks at."""
    secret: str
    """The secret that webhooks are signed with."""


@contextlib.asynccontextmanager
async def start_services(directory: Path, display: Display) -> AsyncIterator[DemoServices]:
    """Start all services, and stop them when the block ends."""
    settings = Settings(
        cache_directory=directory / "cache",
        git_protocols=("http",),
        leader_election=False,
        metrics_enabled=False,
    )
    async with contextlib.AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(DevCluster())
        client = await stack.enter_async_context(Client.connect(kubeconfig=cluster.kubeconfig))
        display.say(f"started a Kubernetes control plane at {cluster.url}")

        (directory / "git").mkdir()
        git = stack.enter_context(GitServer(directory / "git"))
        repository = git.repository("team/shop")
        registry = stack.enter_context(RegistryServer())
        display.say(f"started a git server at {git.url} and an image registry at {registry.endpoint}")

        await _install(client, settings, registry)
        webhook, secret = await _listen(stack, client)
        _install_push_hook(directory, repository, webhook, secret)
        clone = GitClone(directory / "shop", repository.path)
        await clone.start(SAMPLE_APPLICATION)

        await _start_operator(stack, cluster, client, repository, registry, settings)
        display.say("started the operator, with its five CRDs, a DomainPool and a Registry")
        yield DemoServices(
            cluster=cluster,
            client=client,
            repository=repository,
            registry=registry,
            clone=clone,
            webhook=webhook,
            secret=secret,
        )


async def _install(client: Client, settings: Settings, registry: RegistryServer) -> None:
    """Install what an administrator sets up once."""
    for manifest in custom_resource_definitions(KINDS):
        await client.apply(manifest, force=True)
    await client.create(_object("v1", "Namespace", settings.namespace))
    await client.create(_wildcard_certificate(settings.namespace))
    pool = {"baseDomains": [DOMAIN], "wildcardSecretName": _WILDCARD}
    await client.create(_object(DomainPool.api_version, DomainPool.kind, _POOL, spec=pool))
    endpoint = {"endpoint": registry.endpoint, "insecure": True}
    await client.create(_object(Registry.api_version, Registry.kind, REGISTRY, spec=endpoint))


async def _listen(stack: contextlib.AsyncExitStack, client: Client) -> tuple[str, str]:
    """Serve webhooks on loopback. Return their URL and secret."""
    secret = secrets.token_hex(16)
    server = GitWebhookServer(GitWebhook(client, secret), host=_LOOPBACK, port=0)
    await server.start()
    stack.push_async_callback(server.stop)
    return f"http://{_LOOPBACK}:{server.port}{PATH}", secret


def _install_push_hook(directory: Path, repository: GitRepository, webhook: str, secret: str) -> None:
    """Install a hook that reports each push to the operator."""
    secret_file = directory / "webhook-secret"
    secret_file.touch(mode=0o600)
    secret_file.write_text(secret)
    command = [sys.executable, str(Path(push_hook.__file__)), webhook, repository.url, str(secret_file)]
    hook = repository.path / "hooks" / "post-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\nexec {shlex.join(command)}\n")
    hook.chmod(0o700)


async def _start_operator(
    stack: contextlib.AsyncExitStack,
    cluster: DevCluster,
    client: Client,
    repository: GitRepository,
    registry: RegistryServer,
    settings: Settings,
) -> None:
    def read(commit: str, path: str) -> str:
        return repository.git("show", f"{commit}:{path}")

    pods = SimulatedBuildPods(cluster.workloads)
    builder = SimulatedBuilds(client, pods, registry, read, namespace=settings.build_namespace)
    await stack.enter_async_context(builder.running())
    # The operator rejects servers on loopback. Here there are no others.
    http = GuardedHttpClient(address_guard=None)
    stack.push_async_callback(http.close)
    operator = make_operator(settings, ExternalSystems.of(settings, http, address_guard=None))
    operator_client = client.derive(field_manager=operator.field_manager)
    await stack.enter_async_context(operator.running(operator_client, serve=False))


def _wildcard_certificate(namespace: str) -> dict[str, Any]:
    now, lifetime = datetime.now(UTC), timedelta(days=1)
    authority = make_authority("kapsa demo", now=now, lifetime=lifetime)
    pair = issue_certificate(authority, [f"*.{DOMAIN}"], now=now, lifetime=lifetime)
    secret = _object("v1", "Secret", _WILDCARD)
    secret["metadata"]["namespace"] = namespace
    files = {"tls.crt": pair.certificate, "tls.key": pair.key}
    data = {name: base64.b64encode(content).decode() for name, content in files.items()}
    return {**secret, "type": "kubernetes.io/tls", "data": data}


def _object(api_version: str, kind: str, name: str, **parts: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **parts}
