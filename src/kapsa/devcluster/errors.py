"""Errors of a devcluster, for the person who started it.

DevClusterError
├── BinaryNotFound      a control plane binary is missing and cannot be built on this machine
├── BuildFailed         building the control plane failed
├── PortBusy            the requested port is in use
├── DataInUse           another process uses the data directory
├── DataDamaged         the data directory holds a damaged file
├── DataNotWritable     the data directory cannot be used, or a change cannot be written to it
└── ComponentFailed     a process of the control plane ended, or did not become ready
"""

# ruff: noqa: N818 - the names say what happened

import os


class DevClusterError(Exception):
    """A devcluster that cannot start or go on. The message is one line: what happened, and what to do."""

    for_the_user = True


class BinaryNotFound(DevClusterError):
    """A control plane binary that is missing and cannot be built on this machine."""


class BuildFailed(DevClusterError):
    """A failed build of the control plane from its Go modules."""


class PortBusy(DevClusterError):
    """A port requested for the API server that is in use."""

    @classmethod
    def because(cls, port: int, error: OSError) -> "PortBusy":
        reason = os.strerror(error.errno) if error.errno else str(error)
        return cls(
            f"port {port} on 127.0.0.1 cannot be used: {reason}. Choose another port, or 0 for any free one"
        )


class DataInUse(DevClusterError):
    """A data directory that another process uses."""


class DataDamaged(DevClusterError):
    """A data directory whose files cannot be read."""


class DataNotWritable(DevClusterError):
    """A data directory that cannot be used, or a change that cannot be written to it."""


class ComponentFailed(DevClusterError):
    """A process of the control plane that ended on its own, or did not become ready in time."""
