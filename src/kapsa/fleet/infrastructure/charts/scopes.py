"""The kinds that are cluster-scoped, as far as they can be known without a cluster."""

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["cluster_scoped_kinds", "is_crd"]

_BUILT_IN = {
    "": {"Namespace", "Node", "PersistentVolume"},
    "admissionregistration.k8s.io": {
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
        "MutatingWebhookConfiguration",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingWebhookConfiguration",
    },
    "apiextensions.k8s.io": {"CustomResourceDefinition"},
    "apiregistration.k8s.io": {"APIService"},
    "certificates.k8s.io": {"CertificateSigningRequest", "ClusterTrustBundle"},
    "flowcontrol.apiserver.k8s.io": {"FlowSchema", "PriorityLevelConfiguration"},
    "networking.k8s.io": {"IngressClass", "IPAddress", "ServiceCIDR"},
    "node.k8s.io": {"RuntimeClass"},
    "rbac.authorization.k8s.io": {"ClusterRole", "ClusterRoleBinding"},
    "resource.k8s.io": {"DeviceClass", "ResourceSlice", "DeviceTaintRule"},
    "scheduling.k8s.io": {"PriorityClass"},
    "storage.k8s.io": {"CSIDriver", "CSINode", "StorageClass", "VolumeAttachment", "VolumeAttributesClass"},
    "storagemigration.k8s.io": {"StorageVersionMigration"},
}
_OTHERS = {
    # Custom kinds of other projects that charts of operators often bring along.
    "cert-manager.io": {"ClusterIssuer"},
    "external-secrets.io": {"ClusterExternalSecret", "ClusterSecretStore", "ClusterPushSecret"},
    "gateway.networking.k8s.io": {"GatewayClass"},
    "kyverno.io": {"ClusterPolicy", "ClusterCleanupPolicy"},
    "security.openshift.io": {"SecurityContextConstraints"},
    "snapshot.storage.k8s.io": {"VolumeSnapshotClass", "VolumeSnapshotContent"},
}

Kinds = frozenset[tuple[str, str]]


def cluster_scoped_kinds(crds: Iterable[Mapping[str, Any]]) -> Kinds:
    """Return the group and kind of each cluster-scoped kind: built in, of these CRDs, and of well-known projects."""
    kinds = {
        (group, kind) for table in (_BUILT_IN, _OTHERS) for group, names in table.items() for kind in names
    }
    for crd in crds:
        spec = crd.get("spec")
        names = spec.get("names") if isinstance(spec, dict) else None
        if not isinstance(spec, dict) or not isinstance(names, dict):
            continue
        pair = (str(spec.get("group", "")), str(names.get("kind", "")))
        # The chart's own CRD decides, whatever other projects call by the same name.
        if spec.get("scope") == "Cluster":
            kinds.add(pair)
        else:
            kinds.discard(pair)
    return frozenset(kinds)


def is_crd(manifest: Mapping[str, Any]) -> bool:
    """Return whether an object is a CRD."""
    return manifest.get("kind") == "CustomResourceDefinition" and str(
        manifest.get("apiVersion", "")
    ).startswith("apiextensions.k8s.io/")
