"""The inputs of a rendering."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kapsa.adapters.oci.image_reference import ImageReference
from kapsa.environments.resources import EnvironmentRuntime, EnvVar, ServiceTarget

__all__ = ["Injected"]


class Injected(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of an environment that are injected into a project's objects."""

    release: str
    """The Helm release, and the name of objects that the operator generates; at most 53 characters."""
    namespace: str
    """The namespace of the objects."""
    image: ImageReference | None = None
    """The image to run, by its digest if it is known; None keeps the images of the repository."""
    host: str | None = None
    """The only host that the objects may use."""
    variables: Sequence[EnvVar] = ()
    """Environment variables of the application's containers."""
    env_from: Sequence[Mapping[str, Any]] = ()
    """Secrets and ConfigMaps whose keys become environment variables, as in `envFrom` of a container."""
    pull_secret: str = ""
    """The Secret in the namespace to pull the project's images with, if there is one."""
    labels: Mapping[str, str] = {}
    """Labels of objects that the operator generates."""
    runtime: EnvironmentRuntime = EnvironmentRuntime()
    """Replicas, ports, probes and resources of objects that the operator generates."""
    restricted: bool = False
    """True if objects that the operator generates must meet the restricted Pod Security standard."""
    service: ServiceTarget | None = None
    """Name and port of the Service that the operator generates."""
