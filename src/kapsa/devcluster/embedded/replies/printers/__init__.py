"""How built-in kinds look in a table: the columns and cells that kubectl prints.

One module holds one family of kinds. A kind that has no printer is shown by its name and its time of creation.
"""

from __future__ import annotations

from kapsa.devcluster.embedded.replies.printers.cells import Column, Printer, human_duration
from kapsa.devcluster.embedded.replies.printers.configuration import PRINTERS as _CONFIGURATION
from kapsa.devcluster.embedded.replies.printers.core import PRINTERS as _CORE
from kapsa.devcluster.embedded.replies.printers.networking import PRINTERS as _NETWORKING
from kapsa.devcluster.embedded.replies.printers.pods import PRINTERS as _PODS
from kapsa.devcluster.embedded.replies.printers.workloads import PRINTERS as _WORKLOADS

__all__ = ["Column", "Printer", "human_duration", "printer_of"]

_ALL: dict[tuple[str, str], Printer] = {**_CORE, **_PODS, **_WORKLOADS, **_NETWORKING, **_CONFIGURATION}


def printer_of(group: str, resource: str) -> Printer | None:
    """The printer of a built-in resource."""
    return _ALL.get((group, resource))
