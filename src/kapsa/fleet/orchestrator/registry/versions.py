"""Versions of registered objects: a change that is based on an older one must not undo a newer one."""

from kapsa.fleet.domain.errors import StateConflict, VersionMismatch
from kapsa.fleet.domain.registry.clusters import ManagedCluster
from kapsa.fleet.domain.registry.operators import ManagedOperator

__all__ = ["changed_meanwhile", "check_version"]


def check_version(kind: str, present: ManagedCluster | ManagedOperator, expected: int | None) -> None:
    """Raise VersionMismatch unless the object has the expected version; None expects none in particular."""
    if expected is not None and present.version != expected:
        raise VersionMismatch(
            f"{kind} {present.name} has version {present.version}, not {expected}: "
            "read it again, and repeat the change"
        )


def changed_meanwhile(
    kind: str, before: ManagedCluster | ManagedOperator, expected: int | None
) -> StateConflict:
    """Return the error of a change that lost against another one between its read and its write."""
    error = StateConflict if expected is None else VersionMismatch
    return error(f"{kind} {before.name} was changed meanwhile: read it again, and repeat the change")
