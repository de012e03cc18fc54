"""One run of the steps for one Environment: the state that earlier steps hand to later ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from kapsa.environments.metrics import EnvironmentMetrics
from kapsa.environments.names import REDEPLOY_REQUESTED
from kapsa.environments.resources import Environment, Project, Registry, TeamNamespace
from kapsa.environments.settings import Settings
from kapsa.environments.tenancy.namespaces import ClaimedNamespace
from kapsa.runtime import Context

__all__ = ["Manifest", "StepRun"]

Manifest: TypeAlias = dict[str, Any]
_REQUEST_LIMIT = 64


class StepRun(msgspec.Struct, kw_only=True):
    """One run of the steps for one environment, with the results that earlier steps hand to later ones."""

    environment: Environment
    project: Project
    ctx: Context[Environment]
    settings: Settings
    metrics: EnvironmentMetrics
    commit: str
    """The full name of the commit."""
    trusted: bool = True
    """True if this commit may run and see secrets."""
    team: TeamNamespace
    """The namespace of the project."""
    registry: Registry | None = None
    """The Registry with the project's images, if the project names one and may use it."""
    registry_refusal: str = ""
    """The reason why the project may not use the Registry that it names; empty if it may."""
    claimed: ClaimedNamespace | None = None
    """The environment's namespace, once it exists."""
    image: str | None = None
    """The image by digest, if the operator resolved one."""
    warnings: tuple[str, ...] = ()
    """Warnings about the rendered objects, for people."""
    host: str | None = None
    """The host allocated to it."""
    issuer: tuple[str, str] | None = None
    """The kind and name of the issuer of its certificate."""
    wildcard_secret: str | None = None
    """A Secret of the operator's namespace whose certificate covers the host."""
    revisit_after: float | None = None
    """Seconds until the next run, if a step went on without something that no watch reports."""
    objects: Sequence[Manifest] = ()
    """The rendered objects."""
    render_inputs: str = ""
    """A digest of what they were rendered from, if they have generated values."""

    @property
    def redeploy_request(self) -> str | None:
        """The last request of a person to replace the pods, which must not grow the status beyond measure."""
        return self.environment.metadata.annotations.get(REDEPLOY_REQUESTED, "")[:_REQUEST_LIMIT] or None

    @property
    def namespace(self) -> str:
        """The name of the environment's namespace."""
        if self.claimed is None:
            raise RuntimeError(
                f"{self.environment}: a step needs the namespace, but the namespace step has not run"
            )
        return self.claimed.name
