"""What goes into rendering, and how it fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kapsa.adapters.oci.image_reference import ImageReference
from kapsa.environments.resources import EnvironmentRuntime, EnvVar, ServiceTarget

__all__ = ["Injected"]


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
