"""The printer of each built-in kind."""

from __future__ import annotations

from kapsa.devcluster.embedded.replies.printers.cells import Printer
from kapsa.devcluster.embedded.replies.printers.configuration import PRINTERS as _CONFIGURATION
from kapsa.devcluster.embedded.replies.printers.control_plane import PRINTERS as _CONTROL_PLANE
from kapsa.devcluster.embedded.replies.printers.core import PRINTERS as _CORE
from kapsa.devcluster.embedded.replies.printers.devices import PRINTERS as _DEVICES
from kapsa.devcluster.embedded.replies.printers.networking import PRINTERS as _NETWORKING
from kapsa.devcluster.embedded.replies.printers.pods import PRINTERS as _PODS
from kapsa.devcluster.embedded.replies.printers.workloads import PRINTERS as _WORKLOADS

_ALL: dict[tuple[str, str], Printer] = {
    **_CORE,
    **_PODS,
    **_WORKLOADS,
    **_NETWORKING,
    **_CONFIGURATION,
    **_CONTROL_PLANE,
    **_DEVICES,
}


def printer_of(group: str, resource: str) -> Printer | None:
    """Return the printer of a built-in resource, or None."""
    return _ALL.get((group, resource))
