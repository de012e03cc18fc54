"""DefaultStorageClass and DefaultIngressClass: the default class of a claim or an ingress without one."""

from __future__ import annotations

from kapsa.devcluster.embedded.admission.plugin import Object, Plugin
from kapsa.devcluster.embedded.requests.mutations import WriteRequest

__all__ = ["DefaultIngressClass", "DefaultStorageClass"]

_DEFAULT_STORAGE = "storageclass.kubernetes.io/is-default-class"
_DEFAULT_INGRESS = "ingressclass.kubernetes.io/is-default-class"
_STORAGE_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
_INGRESS_ANNOTATION = "kubernetes.io/ingress.class"


class DefaultStorageClass(Plugin):
    """The DefaultStorageClass plugin of the real server."""

    resources = frozenset({("", "persistentvolumeclaims")})

    async def mutate(self, write: WriteRequest, obj: Object, old: Object | None) -> Object:
        annotated = _STORAGE_ANNOTATION in (obj["metadata"].get("annotations") or {})
        if old is not None or annotated or obj["spec"].get("storageClassName") is not None:
            return obj
        default = _newest_default(self._objects("storage.k8s.io", "storageclasses"), _DEFAULT_STORAGE)
        if default is not None:
            obj["spec"]["storageClassName"] = default
        return obj


class DefaultIngressClass(Plugin):
    """The DefaultIngressClass plugin of the real server."""

    resources = frozenset({("networking.k8s.io", "ingresses")})

    async def mutate(self, write: WriteRequest, obj: Object, old: Object | None) -> Object:
        annotated = _INGRESS_ANNOTATION in (obj["metadata"].get("annotations") or {})
        spec = obj.setdefault("spec", {})
        if old is not None or annotated or spec.get("ingressClassName") is not None:
            return obj
        default = _newest_default(self._objects("networking.k8s.io", "ingressclasses"), _DEFAULT_INGRESS)
        if default is not None:
            spec["ingressClassName"] = default
        return obj


def _newest_default(classes: list[Object], annotation: str) -> str | None:
    """Return the name of the newest class that is marked as default, the first by name of several."""
    marked = [
        each for each in classes if (each["metadata"].get("annotations") or {}).get(annotation) == "true"
    ]
    if not marked:
        return None
    newest = max(each["metadata"]["creationTimestamp"] for each in marked)
    return min(
        str(each["metadata"]["name"]) for each in marked if each["metadata"]["creationTimestamp"] == newest
    )
