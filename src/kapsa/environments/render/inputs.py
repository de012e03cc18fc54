"""What goes into rendering, and how it fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from kapsa.environments.image_reference import ImageReference
from kapsa.environments.outside import Refused
from kapsa.environments.resources import EnvironmentRuntime, EnvVar, ServiceTarget

__all__ = ["Injected", "Manifest", "RenderFailed", "shown"]

Manifest: TypeAlias = dict[str, Any]
"""An object as YAML has it."""


class RenderFailed(Refused):
    """The objects cannot be made from what the repository holds. The message is what a developer needs to change it."""

    default_reason = "RenderFailed"


class Injected(msgspec.Struct, frozen=True, kw_only=True):
    """What an environment puts into a project's objects."""

    release: str
    """The Helm release, and the name of what the operator makes itself; at most 53 characters."""
    namespace: str
    """Where the objects go."""
    image: ImageReference | None = None
    """The image to run, by digest where it is known; None leaves the images as they are."""
    host: str | None = None
    """The host that is theirs, and the only one."""
    variables: Sequence[EnvVar] = ()
    """Environment variables of the application's containers."""
    env_from: Sequence[Mapping[str, Any]] = ()
    """Secrets and ConfigMaps whose keys become environment variables, as `envFrom` of a container has them."""
    pull_secret: str = ""
    """The Secret in the namespace that the project's images are pulled with, if there is one."""
    labels: Mapping[str, str] = {}
    """Labels of what the operator makes itself."""
    runtime: EnvironmentRuntime = EnvironmentRuntime()
    """How what the operator makes itself runs."""
    restricted: bool = False
    """Whether what the operator makes itself keeps the restricted Pod Security standard."""
    service: ServiceTarget | None = None
    """What the Service is called that requests go to, for what the operator makes itself."""


def shown(manifest: Mapping[str, Any]) -> str:
    """An object by kind and name, for people."""
    metadata = manifest.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return f"{manifest.get('kind') or 'object'} {name or '(unnamed)'}"
