"""What a cluster holds before anyone has written to it."""

from __future__ import annotations

from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.codec.stored_form import stored_form

__all__ = ["bootstrap"]

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


def bootstrap(backend: Backend) -> None:
    """Create the namespaces that every cluster has."""
    info = backend.registry.get("", "v1", "namespaces")
    for name in NAMESPACES:
        revision = backend.store.next_revision
        namespace = {
            "metadata": {
                "name": name,
                "uid": backend.new_uid(),
                "resourceVersion": str(revision),
                "creationTimestamp": backend.now(),
                "labels": {"kubernetes.io/metadata.name": name},
            },
            "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"},
        }
        backend.collection(info).put(stored_form(info, namespace, revision))
