"""The namespaces that a cluster has before the first write."""

from __future__ import annotations

from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.verbs.commit import furnish

__all__ = ["bootstrap"]

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


def bootstrap(backend: Backend) -> None:
    """Create the namespaces that each cluster has."""
    info = backend.registry.get("", "v1", "namespaces")
    for name in NAMESPACES:
        namespace = {
            "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
            "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"},
        }
        furnish(backend, info, namespace)
