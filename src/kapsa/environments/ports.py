"""Ports: the systems outside the cluster that steps and controllers use, as protocols.

Tests pass in fakes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol

import msgspec

from kapsa.adapters.git.client import Refs
from kapsa.adapters.git.credentials import GitCredentials
from kapsa.adapters.oci.credentials import RegistryCredentials
from kapsa.adapters.oci.image_reference import ImageReference
from kapsa.environments.resources import Environment, Project, TeamNamespace
from kapsa.runtime import Context

__all__ = [
    "BuildProgress",
    "BuildRequest",
    "Builds",
    "CommitClock",
    "CommitResolver",
    "Domains",
    "GeneratedValue",
    "HostGrant",
    "ManifestRenderer",
    "Prober",
    "RefLister",
    "RenderRequest",
    "Rendered",
]


class RefLister(Protocol):
    """A lister of a repository's branches and pull requests, such as `kapsa.adapters.git.client.Git`."""

    async def ls_remote(self, url: str, credentials: GitCredentials | None = None) -> Refs: ...


class CommitClock(Protocol):
    """A source of the times of commits, such as `kapsa.adapters.git.commit_times.CommitTimes`."""

    async def times(
        self, url: str, commits: Collection[str], *, credentials: GitCredentials | None = None
    ) -> Mapping[str, datetime]:
        """Return when each commit was made. One whose time cannot be read is absent."""
        ...


class CommitResolver(Protocol):
    """A resolver of abbreviated commits, such as `kapsa.adapters.git.repositories.Repositories`."""

    async def complete(
        self,
        url: str,
        abbreviated: str,
        *,
        credentials: GitCredentials | None = None,
        branch: str | None = None,
        pull_request: int | None = None,
    ) -> str: ...

    async def in_branches(
        self, url: str, commit: str, *, credentials: GitCredentials | None = None
    ) -> bool: ...


class RenderRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The commit to render, and the values to set in its objects."""

    environment: Environment
    project: Project
    commit: str
    namespace: str
    credentials: GitCredentials | None = None
    image: str | None = None
    """The image by digest, if the operator resolved one."""
    host: str | None = None
    issuer: tuple[str, str] | None = None
    """The kind and name of the issuer that the DomainPool grants."""
    env_from: Sequence[dict[str, Any]] = ()
    """Secrets and ConfigMaps whose keys become environment variables."""
    pull_secrets: Sequence[str] = ()
    """The names of the Secrets for pulling images of all Registries, which the objects may not read."""
    pull_secret: str = ""
    """The Secret for pulling the project's images, if there is one."""


class GeneratedValue(msgspec.Struct, frozen=True):
    """A value that differs each time a chart is rendered, such as a generated password."""

    kind: str
    """The kind of its object, as `v1/Secret`."""
    name: str
    path: tuple[str | int, ...]
    """The keys and indexes that lead to the value."""
    spans: tuple[tuple[int, int], ...] = ()
    """The start and end of each random segment of its text, which is decoded if a Secret has it encoded.
    Empty: the value is random as a whole."""

    @property
    def address(self) -> tuple[str, str, tuple[str | int, ...]]:
        """The identity of the value, the same in every rendering."""
        return self.kind, self.name, self.path


class Rendered(msgspec.Struct, frozen=True):
    """The objects of an environment, and warnings about them."""

    objects: tuple[dict[str, Any], ...]
    warnings: tuple[str, ...] = ()
    """Objects and values that were dropped or changed, each by name."""
    generated: tuple[GeneratedValue, ...] = ()
    """Values that another rendering of the same inputs would not have."""
    inputs: str = ""
    """A digest of the inputs: with the same inputs, only generated values differ."""


class ManifestRenderer(Protocol):
    """A renderer of an environment's objects."""

    async def render(self, request: RenderRequest) -> Rendered:
        """Return the objects after filtering: only allowed kinds, in this namespace.

        Raises ExternalError if they cannot be rendered, or are refused.
        """
        ...


class BuildRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The commit to build, and the image to push."""

    name: str
    """The name of the build's objects: the same for the same image."""
    namespace: str
    """The namespace in which it runs."""
    project: Project
    commit: str
    image: ImageReference
    """The image to push, by its tag."""
    insecure: bool = False
    """True to accept plain HTTP and unverified certificates from the registry."""
    source: GitCredentials | None = None
    """The credentials for the git server."""
    push: RegistryCredentials | None = None
    """The credentials to push the image, out of reach of the build itself."""
    pull: RegistryCredentials | None = None
    """The team's own credentials to pull base images, which the build itself can read."""


class BuildProgress(msgspec.Struct, frozen=True):
    """The progress of a build."""

    state: Literal["running", "succeeded", "failed", "expired"]
    """`expired`: it never ran, and is to be started again."""
    message: str = ""


class Builds(Protocol):
    """The build engines: they define the objects of a build, and read its progress from them."""

    def engine(self, project: Project) -> str:
        """Return the engine that builds this project's images, for metrics and people."""
        ...

    def objects(self, request: BuildRequest) -> Sequence[dict[str, Any]]:
        """Return the objects of a build; the build itself, a Job or a kpack Image, is the last."""
        ...

    def progress(self, build: Mapping[str, Any]) -> BuildProgress:
        """Return the progress of a build from the last of its objects."""
        ...


class HostGrant(msgspec.Struct, frozen=True, kw_only=True):
    """A host allocated to an environment."""

    host: str
    issuer: tuple[str, str] | None = None
    """The kind and name of the issuer of its certificate; None if there is none."""
    wildcard_secret: str | None = None
    """A Secret in the operator's namespace whose certificate covers the host."""


class Domains(Protocol):
    """The allocator of hosts, each to one environment only."""

    async def allocate(
        self, ctx: Context[Environment], environment: Environment, project: Project, team: TeamNamespace
    ) -> HostGrant:
        """Return the host of this environment, the same one each time.

        Raises ExternalError if the host is taken, reserved or not for this team, or if the pool does not exist.
        """
        ...

    async def release(self, ctx: Context[Environment], uid: str) -> None:
        """Release all hosts of the environment with this UID."""
        ...


class Prober(Protocol):
    """A prober that requests a URL, as a browser would."""

    async def probe(self, url: str, *, address: str = "") -> int:
        """Return the status code of the response.

        Raises ExternalError if there is none.
        """
        ...
