"""A Kubernetes control plane for development and tests: embedded in Python, or real."""

from kapsa.devcluster.clock import Clock, SystemClock, VirtualClock, VirtualTimeLoop
from kapsa.devcluster.cluster import DevCluster
from kapsa.devcluster.faults.plan import FaultPlan, Rule

__all__ = ["Clock", "DevCluster", "FaultPlan", "Rule", "SystemClock", "VirtualClock", "VirtualTimeLoop"]
