"""PodTopologyLabels: a pod gets the zone and the region of its node as labels."""

from __future__ import annotations

from kapsa.devcluster.embedded.admission.plugin import Object, Plugin
from kapsa.devcluster.embedded.requests.mutations import WriteRequest

__all__ = ["TopologyLabels"]

_LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


class TopologyLabels(Plugin):
    """The PodTopologyLabels plugin of the real server."""

    resources = frozenset({("", "pods")})

    async def mutate(self, write: WriteRequest, obj: Object, old: Object | None) -> Object:
        is_create = old is None and not write.subresource
        node_name = obj["spec"].get("nodeName")
        if not node_name or not (is_create or write.subresource == "binding"):
            return obj
        stored = self._backend.store.collection("", "nodes").get(node_name)
        labels = (
            {} if stored is None else {key: stored.labels[key] for key in _LABELS if key in stored.labels}
        )
        if labels:
            obj["metadata"]["labels"] = {**(obj["metadata"].get("labels") or {}), **labels}
        return obj
