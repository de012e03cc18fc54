"""Faults on command: a plan decides which request fails and how; a gate applies it to every request."""

from kapsa.devcluster.faults.plan import (
    Answer,
    Compact,
    Crash,
    Cut,
    Delay,
    Drop,
    Duplicate,
    Expire,
    FaultPlan,
    FaultRule,
    Freeze,
    OpenWatch,
    RequestRecord,
    RequestTarget,
    Silence,
)

__all__ = [
    "Answer",
    "Compact",
    "Crash",
    "Cut",
    "Delay",
    "Drop",
    "Duplicate",
    "Expire",
    "FaultPlan",
    "FaultRule",
    "Freeze",
    "OpenWatch",
    "RequestRecord",
    "RequestTarget",
    "Silence",
]
