"""The objects that a cluster has before the first write."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.codec.stored_form import decode
from kapsa.devcluster.embedded.kinds.bootstrap_objects import bootstrap_objects
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.embedded.verbs.commit import commit, commit_template, furnish, rewrite

__all__ = ["advertise", "bootstrap", "publish_authority"]

Object = dict[str, Any]
_SERVICE = "default/kubernetes"


def bootstrap(backend: Backend) -> None:
    """Create the objects that a kube-apiserver creates: namespaces, roles, priorities, API services and the like."""
    for obj, template in bootstrap_objects(backend.now()):
        if backend.store.collection(obj.group, obj.resource).get(obj.key) is None:
            commit_template(backend, obj, template)


def advertise(backend: Backend, host: str, port: int) -> None:
    """Make the Service `kubernetes` point to the address that the server listens on."""
    services = backend.registry.get("", "v1", "services")
    stored = backend.collection(services).get(_SERVICE)
    if stored is None:
        return
    service = decode(stored)
    service["spec"]["ports"][0]["targetPort"] = port
    # Not a change: a real server creates the Service when it knows its port.
    rewrite(backend, services, service, stored.revision)
    metadata = {"name": "kubernetes", "namespace": "default"}
    endpoints: Object = {
        "metadata": {**metadata, "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        "subsets": [
            {"addresses": [{"ip": host}], "ports": [{"name": "https", "port": port, "protocol": "TCP"}]}
        ],
    }
    _renew(backend, backend.registry.get("", "v1", "endpoints"), endpoints)
    endpoint_slice: Object = {
        "metadata": {**metadata, "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [host], "conditions": {"ready": True}}],
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
    }
    _renew(backend, backend.registry.get("discovery.k8s.io", "v1", "endpointslices"), endpoint_slice)


def _renew(backend: Backend, info: ResourceInfo, obj: Object) -> None:
    """Store an object, or bring one that an earlier process left up to date."""
    metadata = obj["metadata"]
    stored = backend.collection(info).get(info.object_key(metadata["namespace"], metadata["name"]))
    if stored is None:
        furnish(backend, info, obj)
        return
    live = decode(stored)
    renewed = {**live, **{field: value for field, value in obj.items() if field != "metadata"}}
    if renewed != live:
        commit(backend, info, renewed)


def publish_authority(backend: Backend, certificate: str) -> None:
    """Publish the authority of client certificates, for API servers that extend this one."""
    metadata = {"name": "extension-apiserver-authentication", "namespace": "kube-system"}
    config_map = {"metadata": metadata, "data": {"client-ca-file": certificate}}
    _renew(backend, backend.registry.get("", "v1", "configmaps"), config_map)
