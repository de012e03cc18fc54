"""Fields that an endpoint resets to the live object's: a write through it never owns them."""

from __future__ import annotations

from kapsa.devcluster.embedded.apply.fieldset import Fields, from_paths
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo

__all__ = ["reset_fields"]

_NOTHING: Fields = {}
_STATUS = from_paths(("status",))
_SPEC = from_paths(("spec",))
_SPEC_AND_METADATA = from_paths(("metadata",), ("spec",))

_SPECIAL: dict[tuple[str, str, str], Fields] = {
    ("certificates.k8s.io", "certificatesigningrequests", ""): from_paths(("spec",), ("status",)),
    ("certificates.k8s.io", "certificatesigningrequests", "status"): from_paths(
        ("spec",), ("status", "conditions")
    ),
    ("certificates.k8s.io", "certificatesigningrequests", "approval"): from_paths(
        ("spec",), ("status", "certificate")
    ),
    ("apps", "deployments", "status"): from_paths(("spec",), ("metadata", "labels")),
    ("", "pods", "status"): from_paths(
        ("spec",), ("metadata", "deletionTimestamp"), ("metadata", "ownerReferences")
    ),
    ("", "namespaces", "finalize"): _STATUS,
}
_STATUS_KEEPS_METADATA = frozenset(
    {
        ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
        ("apiregistration.k8s.io", "apiservices"),
        ("flowcontrol.apiserver.k8s.io", "flowschemas"),
        ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"),
        ("internal.apiserver.k8s.io", "storageversions"),
        ("networking.k8s.io", "servicecidrs"),
        ("resource.k8s.io", "devicetaintrules"),
        ("resource.k8s.io", "resourceclaims"),
        ("storage.k8s.io", "volumeattachments"),
        ("storagemigration.k8s.io", "storageversionmigrations"),
    }
)
"""Built-in kinds whose status endpoint resets metadata, as that of every custom resource does."""


def reset_fields(info: ResourceInfo, subresource: str) -> Fields:
    """Return the fields that a write through an endpoint cannot set."""
    special = _SPECIAL.get((info.group, info.resource, subresource))
    if special is not None:
        return special
    if subresource == "":
        return _STATUS if info.has_status else _NOTHING
    if subresource != "status":
        return _NOTHING
    keeps = info.is_custom or (info.group, info.resource) in _STATUS_KEEPS_METADATA
    return _SPEC_AND_METADATA if keeps else _SPEC
