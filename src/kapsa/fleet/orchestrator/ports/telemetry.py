"""Reports of the manager about its own work. They are made after the commit, change nothing, and never fail."""

from typing import Protocol

from kapsa.fleet.domain.rollout.deployments import VersionDeployment

__all__ = ["UNMETERED", "UNREPORTED", "RegistryMeter", "RolloutReporter"]


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
        """Report a deployment that has left a phase."""
        ...


class _Unmetered:
    def cluster_registered(self) -> None:
        return

    def crd_validated(self, *, breaking: bool) -> None:
        return


class _Unreported:
    def phase_changed(self, before: VersionDeployment, after: VersionDeployment) -> None:
        return


UNMETERED: RegistryMeter = _Unmetered()
"""A meter that counts nothing."""
UNREPORTED: RolloutReporter = _Unreported()
"""A reporter that reports nothing."""
