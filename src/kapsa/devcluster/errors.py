"""What can go wrong with a devcluster, for the person who started it.

DevClusterError
├── BinaryNotFound      a control plane binary is nowhere, and cannot be built here
├── BuildFailed         building the control plane ended with an error
├── PortBusy            the port asked for belongs to someone else
└── ComponentFailed     a process of the control plane ended, or did not become ready
"""

# ruff: noqa: N818 - each is named as what it is

import os


class DevClusterError(Exception):
    """A devcluster could not start or go on. The message is one line that says what happened and what to do."""

    for_the_user = True


class BinaryNotFound(DevClusterError):
    """A control plane binary is neither present nor buildable on this machine."""


class BuildFailed(DevClusterError):
    """Building the control plane from its Go modules ended with an error."""


class PortBusy(DevClusterError):
    """The port the API server was told to use is taken."""

    @classmethod
    def because(cls, port: int, error: OSError) -> "PortBusy":
        reason = os.strerror(error.errno) if error.errno else str(error)
        return cls(
            f"port {port} on 127.0.0.1 cannot be used: {reason}. Choose another, or 0 for any free one"
        )


class ComponentFailed(DevClusterError):
    """A process of the control plane ended on its own, or did not become ready in time."""
