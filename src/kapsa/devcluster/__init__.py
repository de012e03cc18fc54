"""A Kubernetes control plane for development and tests: embedded in Python, or real."""

from .clock import Clock, SystemClock, VirtualClock, VirtualTimeLoop
from .cluster import DevCluster
from .faults import FaultPlan, Rule

__all__ = ["Clock", "DevCluster", "FaultPlan", "Rule", "SystemClock", "VirtualClock", "VirtualTimeLoop"]
