"""Reports of the manager about its own work. They change nothing, and never fail."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from kapsa.fleet.domain.rollout.deployments import VersionDeployment
from kapsa.fleet.domain.rollout.targets import RolloutTarget

__all__ = ["UNMETERED", "UNREPORTED", "RegistryMeter", "RolloutReporter", "StepRecorder"]

StepRecorder = Callable[[RolloutTarget], None]
"""Records the outcome of a step: the target as it becomes."""


class RegistryMeter(Protocol):
    """A counter of what the registry does."""

    def cluster_registered(self) -> None:
        """Count a registered cluster."""
        ...

    def crd_validated(self, *, breaking: bool) -> None:
        """Count the comparison of a CRD with the one before it."""
        ...


class RolloutReporter(Protocol):
    """An observer of deployments."""

    def phase_changed(self, before: VersionDeployment, after: VersionDeployment) -> None:
        """Report a deployment that has left a phase, after the commit."""
        ...

    def step_changed(
        self, deployment: VersionDeployment, before: RolloutTarget, after: RolloutTarget
    ) -> None:
        """Report a cluster that has left a step, after the commit."""
        ...

    def planning(self, deployment: VersionDeployment) -> AbstractContextManager[None]:
        """Return the frame of the making of a plan."""
        ...

    def step(
        self, deployment: VersionDeployment, target: RolloutTarget
    ) -> AbstractContextManager[StepRecorder]:
        """Return the frame of a step on a cluster."""
        ...


class _Unmetered:
    def cluster_registered(self) -> None:
        return

    def crd_validated(self, *, breaking: bool) -> None:
        return


class _Unreported:
    def phase_changed(self, before: VersionDeployment, after: VersionDeployment) -> None:
        return

    def step_changed(
        self, deployment: VersionDeployment, before: RolloutTarget, after: RolloutTarget
    ) -> None:
        return

    @contextmanager
    def planning(self, deployment: VersionDeployment) -> Iterator[None]:
        yield

    @contextmanager
    def step(self, deployment: VersionDeployment, target: RolloutTarget) -> Iterator[StepRecorder]:
        yield lambda _: None


UNMETERED: RegistryMeter = _Unmetered()
"""A meter that counts nothing."""
UNREPORTED: RolloutReporter = _Unreported()
"""A reporter that reports nothing."""
