"""What the steps and controllers need of the world outside the cluster, as protocols: handed in, so that tests can hand in others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from kapsa.adapters.git.client import Refs
from kapsa.adapters.git.credentials import GitCredentials
from kapsa.adapters.oci.credentials import RegistryCredentials
from kapsa.adapters.oci.image_reference import ImageReference
from kapsa.environments.resources import Environment, Project
from kapsa.runtime import Context

__all__ = [
    "BuildProgress",
    "BuildRequest",
    "Builds",
    "Domains",
    "HostGrant",
    "ListsRefs",
    "Prober",
    "RenderRequest",
    "Rendered",
    "Renders",
    "ResolvesCommits",
]


class ListsRefs(Protocol):
    """Tells what a repository shows: `kapsa.adapters.git.client.Git`."""

    async def ls_remote(self, url: str, credentials: GitCredentials | None = None) -> Refs: ...


class ResolvesCommits(Protocol):
    """Completes shortened commits: `kapsa.adapters.git.repositories.Repositories`."""

    async def complete(
        self,
        url: str,
        beginning: str,
        *,
        credentials: GitCredentials | None = None,
        branch: str | None = None,
        pull_request: int | None = None,
    ) -> str: ...


class RenderRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to render, and what to put into it."""

    environment: Environment
    project: Project
    commit: str
    namespace: str
    credentials: GitCredentials | None = None
    image: str | None = None
    """The image by digest, if the operator knows one."""
    host: str | None = None
    env_from: Sequence[dict[str, Any]] = ()
    """Secrets and ConfigMaps whose keys become environment variables."""
    pull_secret: str = ""
    """The Secret that the project's images are pulled with, if there is one."""


class Rendered(msgspec.Struct, frozen=True):
    """The objects of an environment, and what somebody should know about them."""

    objects: tuple[dict[str, Any], ...]
    warnings: tuple[str, ...] = ()
    """What was left out or changed, each by name."""


class Renders(Protocol):
    """Makes the objects of an environment."""

    async def render(self, request: RenderRequest) -> Rendered:
        """The objects, filtered: only allowed kinds, in this namespace.

        :raises ExternalError: they cannot be made, or are refused.
        """
        ...


class BuildRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to build, and where to push it."""

    name: str
    """The name of the build's objects: the same for the same image."""
    namespace: str
    """Where it runs."""
    project: Project
    commit: str
    image: ImageReference
    """What is pushed, by its tag."""
    insecure: bool = False
    """Whether the registry is reached without certificates that somebody vouches for."""
    source: GitCredentials | None = None
    """Who we are to the git server."""
    push: RegistryCredentials | None = None
    """Who we are to the registry."""


class BuildProgress(msgspec.Struct, frozen=True):
    """How far a build is."""

    state: Literal["running", "succeeded", "failed"]
    message: str = ""


class Builds(Protocol):
    """Makes the objects of builds, and reads them."""

    def engine(self, project: Project) -> str:
        """What builds this project's images, for metrics and people."""
        ...

    def objects(self, request: BuildRequest) -> Sequence[dict[str, Any]]:
        """The objects that build it; the build itself, a Job or a kpack Image, is the last."""
        ...

    def progress(self, build: Mapping[str, Any]) -> BuildProgress:
        """How far the build is, from the last of its objects."""
        ...


class HostGrant(msgspec.Struct, frozen=True, kw_only=True):
    """A host that an environment holds."""

    host: str
    issuer: tuple[str, str] | None = None
    """The kind and name of who signs its certificate; None if nobody does."""
    wildcard_secret: str | None = None
    """A Secret in the operator's namespace whose certificate covers it."""


class Domains(Protocol):
    """Gives out hosts, each to one environment only."""

    async def allocate(
        self, ctx: Context[Environment], environment: Environment, project: Project
    ) -> HostGrant:
        """The host of this environment: the same one every time.

        :raises ExternalError: it is taken, reserved, or there is no such pool.
        """
        ...

    async def release(self, ctx: Context[Environment], uid: str) -> None:
        """Give back whatever the environment of this UID holds."""
        ...


class Prober(Protocol):
    """Asks a host for a page, as a browser would."""

    async def probe(self, url: str, *, address: str = "") -> int:
        """The status code of the answer.

        :raises ExternalError: there is none.
        """
        ...
