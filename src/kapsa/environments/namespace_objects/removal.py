"""The removal of workloads with their pods: a workload exists until its last pod has ended."""

from __future__ import annotations

from collections.abc import Sequence

from kapsa.environments.namespace_objects.children import shown
from kapsa.environments.step_run import Manifest, StepRun

__all__ = ["LOOK_AGAIN_SECONDS", "delete_with_pods", "going"]

LOOK_AGAIN_SECONDS = 5.0
"""Seconds until the next look at workloads that are being deleted, some of which are not watched."""


async def delete_with_pods(visit: StepRun, workload: Manifest) -> bool:
    """Delete a workload, which is kept until its pods are gone. Return False if it is being deleted already."""
    if workload["metadata"].get("deletionTimestamp"):
        return False
    return await visit.ctx.delete(workload, propagation="Foreground")


def going(workloads: Sequence[Manifest]) -> str:
    """Return what is being deleted, for messages."""
    more = f" and {len(workloads) - 1} more" if len(workloads) > 1 else ""
    return f"{shown(workloads[0])}{more} and {'their' if more else 'its'} pods are being deleted"
