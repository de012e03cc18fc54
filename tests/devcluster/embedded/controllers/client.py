"""A client for tests of controllers, and the specs they use."""

from __future__ import annotations

import asyncio
from typing import Any

from kapsa.devcluster import DevCluster
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.embedded.verbs.client import InProcessClient

Object = dict[str, Any]

_GROUPS = {
    "pods": "",
    "services": "",
    "endpoints": "",
    "configmaps": "",
    "secrets": "",
    "serviceaccounts": "",
    "namespaces": "",
    "nodes": "",
    "events": "",
    "persistentvolumeclaims": "",
    "persistentvolumes": "",
    "replicationcontrollers": "",
    "deployments": "apps",
    "replicasets": "apps",
    "statefulsets": "apps",
    "daemonsets": "apps",
    "controllerrevisions": "apps",
    "poddisruptionbudgets": "policy",
    "jobs": "batch",
    "cronjobs": "batch",
    "endpointslices": "discovery.k8s.io",
    "priorityclasses": "scheduling.k8s.io",
    "storageclasses": "storage.k8s.io",
    "volumeattributesclasses": "storage.k8s.io",
}


class ObjectClient:
    """A client of an embedded cluster: objects by plural name, in namespace `default`."""

    def __init__(self, cluster: DevCluster) -> None:
        self.cluster = cluster
        self.workloads = cluster.workloads
        self._verbs: InProcessClient = cluster.server.client.as_manager("test")

    def info(self, resource: str) -> ResourceInfo:
        return self._verbs.resource(_GROUPS[resource], "v1", resource)

    async def create(self, resource: str, name: str, spec: Object | None = None, **more: Any) -> Object:
        info = self.info(resource)
        metadata = {"name": name, **more.pop("metadata", {})}
        if info.namespaced:
            metadata.setdefault("namespace", "default")
        obj: Object = {"metadata": metadata, **more}
        if spec is not None:
            obj["spec"] = spec
        return await self._verbs.create(info, obj)

    def find(self, resource: str, name: str, namespace: str = "default") -> Object | None:
        return self._verbs.find(self.info(resource), namespace, name)

    def get(self, resource: str, name: str, namespace: str = "default") -> Object:
        return self._verbs.get(self.info(resource), namespace, name)

    def list(self, resource: str, namespace: str = "default", labels: str = "") -> list[Object]:
        return self._verbs.list(self.info(resource), namespace, labels=labels)

    def names(self, resource: str, namespace: str = "default") -> list[str]:
        return [obj["metadata"]["name"] for obj in self.list(resource, namespace)]

    async def update(self, resource: str, obj: Object) -> Object:
        return await self._verbs.update(self.info(resource), obj)

    async def change(self, resource: str, name: str, **spec: Any) -> Object:
        """Replace fields of an object's spec."""
        obj = self.get(resource, name)
        obj["spec"].update(spec)
        return await self.update(resource, obj)

    async def delete(
        self, resource: str, name: str, propagation: str | None = None, namespace: str = "default"
    ) -> None:
        info = self.info(resource)
        await self._verbs.delete(info, namespace if info.namespaced else "", name, propagation=propagation)

    async def settle(self, seconds: float = 0.001) -> None:
        """Let time pass. On virtual time, all pending work runs before the clock moves."""
        await asyncio.sleep(seconds)

    def events(self, about: str) -> list[tuple[str, str]]:
        """Return the reasons and messages of the Events about an object, oldest first."""
        events = [e for e in self.list("events") if e["involvedObject"]["name"] == about]
        events.sort(key=lambda e: int(e["metadata"]["resourceVersion"]))
        return [(e["reason"], e["message"]) for e in events]


def condition(obj: Object, type_: str) -> Object:
    """Return a condition of an object's status; an empty dict if there is none of that type."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((c for c in conditions if c["type"] == type_), {})


def template(image: str = "app:1", **spec: Any) -> Object:
    return {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": image}], **spec},
    }


def workload(replicas: int = 3, image: str = "app:1", **more: Any) -> Object:
    """Return the spec of a workload with replicas."""
    return {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": "web"}},
        "template": template(image),
        **more,
    }
