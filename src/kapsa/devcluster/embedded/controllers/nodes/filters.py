"""The filters of nodes: their results, and the state of the cluster that they read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from kapsa.devcluster.embedded.controllers.machinery.kinds import Kind, Object


class Misfit(msgspec.Struct, frozen=True):
    """A reason against a node, in the words of kube-scheduler."""

    text: str
    preemptible: bool = False
    """True if the pod might fit once other pods have left the node."""


class RejectedPodError(Exception):
    """A pod that fits no node whatever its nodes are like. The message is kube-scheduler's."""


NodeFilter = Callable[[Object], Misfit | None]
"""Returns why a pod does not fit a node; None if it does."""


class ClusterState(Protocol):
    """The objects that decide where a pod can run."""

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """Return an object, or None."""

    def objects(self, kind: Kind, namespace: str = "") -> list[Object]:
        """Return the objects of a kind, in one namespace or in all."""

    def pods_on(self, node: str) -> list[Object]:
        """Return the pods on a node."""

    def repelling_pods(self) -> list[Object]:
        """Return the pods on nodes that have required anti-affinity."""
