"""One run of the steps for one Environment: the state that earlier steps hand to later ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from kapsa.environments.interests import Interests
from kapsa.environments.metrics import EnvironmentMetrics
from kapsa.environments.resources import Environment, Project, Registry
from kapsa.environments.settings import Settings
from kapsa.environments.tenancy.namespaces import ClaimedNamespace
from kapsa.runtime import Context

__all__ = ["Manifest", "Visit"]

Manifest: TypeAlias = dict[str, Any]


class Visit(msgspec.Struct, kw_only=True):
    """One run of the steps for one environment, with what earlier steps found out for later ones."""

    environment: Environment
    project: Project
    ctx: Context[Environment]
    settings: Settings
    interests: Interests
    metrics: EnvironmentMetrics
    commit: str
    """The full name of the commit."""
    trusted: bool = True
    """Whether this commit may see secrets."""
    registry: Registry | None = None
    """Where the project's images are, if it names a Registry."""
    namespace: ClaimedNamespace | None = None
    """Its namespace, once that is there."""
    image: str | None = None
    """The image by digest, if the operator knows one."""
    warnings: tuple[str, ...] = ()
    """What somebody should know about the objects that were rendered."""
    host: str | None = None
    """The host that it was given."""
    issuer: tuple[str, str] | None = None
    """The kind and name of the issuer of its certificate."""
    wildcard_secret: str | None = None
    """A Secret of the operator's namespace whose certificate covers the host."""
    objects: Sequence[Manifest] = ()
    """What was rendered."""

    @property
    def place(self) -> str:
        """The name of its namespace."""
        if self.namespace is None:
            raise RuntimeError(
                f"{self.environment}: a step needs the namespace before the step that makes it"
            )
        return self.namespace.name
