"""Fakes of the ports, in memory: a repository, a registry, a renderer, domains. For tests on virtual time."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Unpack

from kapsa.adapters.errors import ExternalError, Refused
from kapsa.adapters.git.client import Refs
from kapsa.adapters.git.credentials import GitCredentials
from kapsa.adapters.oci.image_reference import ImageReference
from kapsa.adapters.oci.registries import RegistryAccess
from kapsa.environments.ports import BuildProgress, BuildRequest, HostGrant, Rendered, RenderRequest
from kapsa.environments.resources import Environment, Project, TeamNamespace
from kapsa.runtime import Context

__all__ = ["FakeBuilds", "FakeDomains", "FakeGit", "FakeImages", "FakeProber", "FakeRenderer", "commit_of"]


def commit_of(text: str) -> str:
    """Return a commit that is always the same for the same text."""
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class FakeGit:
    """A repository with configurable branches and pull requests."""

    def __init__(self) -> None:
        self.branches: dict[str, str] = {"main": commit_of("main")}
        self.pull_requests: dict[int, str] = {}
        self.history: set[str] = set()
        """Commits that a branch was at earlier."""
        self.commit_times: dict[str, datetime] = {}
        self.times_error: ExternalError | None = None
        self.error: ExternalError | None = None
        self.listed = 0
        self.credentials: list[GitCredentials | None] = []

    def push(self, branch: str, text: str = "", *, committed_at: datetime | None = None) -> str:
        """Push a commit to a branch. Without a time, the repository does not reveal it."""
        commit = self.branches[branch] = commit_of(text or branch)
        if committed_at is not None:
            self.commit_times[commit] = committed_at
        return commit

    async def times(
        self, url: str, commits: Collection[str], *, credentials: GitCredentials | None = None
    ) -> dict[str, datetime]:
        if self.times_error is not None:
            raise self.times_error
        return {each: self.commit_times[each] for each in commits if each in self.commit_times}

    async def ls_remote(self, url: str, credentials: GitCredentials | None = None) -> Refs:
        self.listed += 1
        self.credentials.append(credentials)
        if self.error is not None:
            raise self.error
        return Refs(dict(self.branches), dict(self.pull_requests), self.branches.get("main", ""), "main")

    async def complete(
        self,
        url: str,
        beginning: str,
        *,
        credentials: GitCredentials | None = None,
        branch: str | None = None,
        pull_request: int | None = None,
    ) -> str:
        return (await self.ls_remote(url, credentials)).complete(beginning, pull_request=pull_request)

    async def in_branches(self, url: str, commit: str, *, credentials: GitCredentials | None = None) -> bool:
        if self.error is not None:
            raise self.error
        return commit in {*self.history, *self.branches.values()}


class FakeRenderer:
    """A renderer of a Deployment and a Service, or of configured objects."""

    def __init__(self) -> None:
        self.objects: list[dict[str, Any]] | None = None
        self.warnings: tuple[str, ...] = ()
        self.error: ExternalError | None = None
        self.requests: list[RenderRequest] = []

    async def render(self, request: RenderRequest) -> Rendered:
        self.requests.append(request)
        if self.error is not None:
            raise self.error
        if self.objects is not None:
            return Rendered(tuple(self.objects), self.warnings)
        image = request.image or f"app:{request.commit[:12]}"
        return Rendered((deployment("web", image), service("web")), self.warnings)


RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""A security context that each Pod Security level allows."""


def deployment(name: str, image: str, **spec: Any) -> dict[str, Any]:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "app", "image": image, "securityContext": RESTRICTED}]},
            },
            **spec,
        },
    }


def service(name: str, port: int = 80) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [{"name": "http", "port": port}]},
    }


class FakeImages:
    """A registry in memory."""

    def __init__(self) -> None:
        self.digests: dict[str, str] = {}
        self.error: ExternalError | None = None
        self.asked: list[str] = []

    def push(self, image: str) -> str:
        self.digests[image] = "sha256:" + hashlib.sha256(image.encode()).hexdigest()
        return self.digests[image]

    async def digest(self, image: ImageReference, **access: Unpack[RegistryAccess]) -> str | None:
        self.asked.append(str(image))
        if self.error is not None:
            raise self.error
        return self.digests.get(str(image))

    async def delete(self, image: ImageReference, **access: Unpack[RegistryAccess]) -> bool:
        if self.error is not None:
            raise self.error
        kept = {tag: digest for tag, digest in self.digests.items() if digest != image.digest}
        existed = len(kept) < len(self.digests)
        self.digests = kept
        return existed


class FakeBuilds:
    """A build engine whose Job does nothing."""

    def __init__(self, images: FakeImages) -> None:
        self._images = images
        self.image = "builder:1"

    def engine(self, project: Project) -> str:
        return "fake"

    def objects(self, request: BuildRequest) -> Sequence[dict[str, Any]]:
        container = {
            "name": "build",
            "image": self.image,
            "env": [{"name": "IMAGE", "value": str(request.image)}],
        }
        pod = {"restartPolicy": "Never", "containers": [container]}
        return [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": request.name},
                "spec": {"backoffLimit": 0, "template": {"spec": pod}},
            }
        ]

    def progress(self, build: Mapping[str, Any]) -> BuildProgress:
        conditions = {each["type"]: each for each in (build.get("status") or {}).get("conditions") or ()}
        if conditions.get("Complete", {}).get("status") == "True":
            return BuildProgress("succeeded")
        if conditions.get("Failed", {}).get("status") == "True":
            return BuildProgress("failed", str(conditions["Failed"].get("message", "")))
        return BuildProgress("running")


class FakeDomains:
    """An allocator of hosts under one domain."""

    def __init__(self) -> None:
        self.held: dict[str, str] = {}
        self.issuer: tuple[str, str] | None = None
        self.wildcard: str | None = None

    async def allocate(
        self, ctx: Context[Environment], environment: Environment, project: Project, team: TeamNamespace
    ) -> HostGrant:
        host = environment.spec.ingress.host or f"{environment.name}.preview.catalyst.dev"
        holder = self.held.setdefault(host, environment.metadata.uid)
        if holder != environment.metadata.uid:
            raise Refused(f"host {host} is taken by another environment", reason="HostTaken")
        return HostGrant(host=host, issuer=self.issuer, wildcard_secret=self.wildcard)

    async def release(self, ctx: Context[Environment], uid: str) -> None:
        for host in [host for host, holder in self.held.items() if holder == uid]:
            del self.held[host]


class FakeProber:
    """A prober with a configurable response."""

    def __init__(self) -> None:
        self.code = 200
        self.error: ExternalError | None = None
        self.asked: list[str] = []

    async def probe(self, url: str, *, address: str = "") -> int:
        self.asked.append(url)
        if self.error is not None:
            raise self.error
        return self.code
