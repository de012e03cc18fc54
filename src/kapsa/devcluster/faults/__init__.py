"""Faults on request: a plan decides which request fails and how, and a gate applies it to each request."""

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
