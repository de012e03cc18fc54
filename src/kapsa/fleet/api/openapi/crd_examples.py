"""Examples of CRDs, made of the types themselves."""

import uuid
from datetime import UTC, datetime
from typing import Any

import msgspec

from kapsa.fleet.domain.crds import CrdComparison
from kapsa.fleet.domain.registry.clusters import ClusterEnvironment
from kapsa.fleet.orchestrator.crds.requests import (
    ApproveCrd,
    CrdDetail,
    CrdValidation,
    StoreCrd,
    ValidateCrd,
)
from kapsa.fleet.orchestrator.ports.crds import CrdApproval, CrdListing, CrdOnCluster, CrdRevision

__all__ = ["CRD_EXAMPLES"]

_AT = datetime(2026, 11, 17, 12, 0, tzinfo=UTC)
_OPERATOR, _CLUSTER = uuid.UUID(int=0x7F0C9B52), uuid.UUID(int=0x7F0C9B54)
_NAME, _DIGEST = "certificates.cert-manager.io", f"sha256:{'d' * 64}"
_DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": _NAME},
    "spec": {"group": "cert-manager.io", "scope": "Namespaced"},
}

_revision = CrdRevision(_OPERATOR, "cert-manager", "1.19.2", _NAME, "crds", _DIGEST, _AT, "maria")
_approval = CrdApproval(_OPERATOR, "1.19.2", _NAME, "1.19.1", _DIGEST, "ada", _AT, "Agreed.")
_on_cluster = CrdOnCluster(
    cluster_id=_CLUSTER,
    cluster="prod-eu",
    environment=ClusterEnvironment.PRODUCTION,
    kubernetes_version="v1.36.3",
    served_versions=("v1",),
    storage_version="v1",
    stored_versions=("v1",),
    managed_by="",
    taken_at=_AT,
)

_STRUCTS: tuple[msgspec.Struct, ...] = (
    StoreCrd("cert-manager", "1.19.2", _DEFINITION),
    ValidateCrd("cert-manager", "1.19.2", "1.19.1"),
    ApproveCrd("cert-manager", "1.19.2", _DIGEST, "1.19.1", "Agreed."),
    CrdListing(_NAME, "cert-manager", "cert-manager.io", "Certificate", "Namespaced", "1.19.2", 2),
    _revision,
    _approval,
    CrdDetail(_NAME, (_revision,), (_on_cluster,), (_approval,)),
    CrdValidation.of(
        CrdComparison(_NAME, (), ()),
        operator="cert-manager",
        from_version="1.19.1",
        version="1.19.2",
        digest=_DIGEST,
        guides=(),
        clusters=(),
        validated_at=_AT,
    ),
)

CRD_EXAMPLES: dict[Any, Any] = {type(each): msgspec.to_builtins(each) for each in _STRUCTS}
