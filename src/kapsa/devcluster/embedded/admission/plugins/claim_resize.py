"""PersistentVolumeClaimResize: only a bound claim of a class that allows it can grow."""

from __future__ import annotations

from decimal import Decimal

from kapsa.devcluster.embedded.admission.plugin import Object, Plugin, forbidden
from kapsa.devcluster.embedded.requests.mutations import WriteRequest
from kapsa.schemas.quantities import parse

__all__ = ["ClaimResize"]

_CLAIMS = ("", "persistentvolumeclaims")


class ClaimResize(Plugin):
    """The PersistentVolumeClaimResize plugin of the real server."""

    resources = frozenset({_CLAIMS})

    async def validate(self, write: WriteRequest, obj: Object, old: Object | None) -> None:
        if old is None or write.subresource or _size(obj) <= _size(old):
            return
        if (old.get("status") or {}).get("phase") != "Bound":
            raise forbidden(write, obj, "Only bound persistent volume claims can be expanded")
        name = obj["spec"].get("storageClassName")
        chosen = (
            self._object("storage.k8s.io", "storageclasses", name)
            if name and name == old["spec"].get("storageClassName")
            else None
        )
        if chosen is None or not chosen.get("allowVolumeExpansion"):
            why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
            raise forbidden(write, obj, why)


def _size(claim: Object) -> Decimal:
    return parse(((claim["spec"].get("resources") or {}).get("requests") or {}).get("storage", "0"))
