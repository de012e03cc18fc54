"""Intervals, patience and limits of the rollout engine."""

from datetime import timedelta

import msgspec

from kapsa.fleet.domain.rollout.approvals import ApprovalPolicy

__all__ = ["EngineSettings"]


class EngineSettings(msgspec.Struct, frozen=True):
    """Settings of the engine. Every replica has the same, except for its name."""

    owner: str = "manager"
    """The name of this replica, in leases and messages."""
    slots: int = 10
    """Clusters and deployments that this replica works on at a time. One is kept for decisions and rollbacks."""
    max_concurrent_deployments: int = 20
    """Deployments at work in the whole system."""
    lease: timedelta = timedelta(seconds=60)
    check_interval: timedelta = timedelta(seconds=30)
    """The time between two health checks."""
    retry_interval: timedelta = timedelta(seconds=10)
    """The time between two attempts to reach a cluster, or to find it ready."""
    window_interval: timedelta = timedelta(minutes=1)
    """The longest time until windows and freezes of a waiting cluster are judged again: people change both."""
    patience: timedelta = timedelta(minutes=15)
    """The longest wait for a cluster that was changed; then the deployment pauses."""
    offline_patience: timedelta = timedelta(hours=1)
    """The longest wait for a cluster that was offline when its turn came; then it is skipped."""
    queue_patience: timedelta = timedelta(days=1)
    """The longest wait of a planned deployment for its turn; then it has failed."""
    rollback_patience: timedelta = timedelta(minutes=30)
    """The longest wait in a rollback; then it has failed."""
    hand_over_patience: timedelta = timedelta(minutes=5)
    """The longest wait of blue-green for a controller to stop, or for a webhook to answer."""
    approvals: ApprovalPolicy = ApprovalPolicy()
