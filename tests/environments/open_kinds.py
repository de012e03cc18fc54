"""CRDs of other projects, such as cert-manager, with a schema that accepts anything."""

from __future__ import annotations

from typing import Any

from kapsa.runtime import GroupVersionKind

__all__ = ["open_kind"]


def open_kind(kind: str) -> dict[str, Any]:
    """Return the CustomResourceDefinition of a namespaced kind, such as `kpack.io/v1alpha2/Image`."""
    gvk = GroupVersionKind.parse(kind)
    plural = f"{gvk.kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": gvk.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    # The API server asks for it where a group ends in k8s.io.
    approved = {"api-approved.kubernetes.io": "https://example.com/approved"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{gvk.group}", "annotations": approved},
        "spec": {
            "group": gvk.group,
            "scope": "Namespaced",
            "names": {"kind": gvk.kind, "plural": plural, "singular": gvk.kind.lower()},
            "versions": [version],
        },
    }
