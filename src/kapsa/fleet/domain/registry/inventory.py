"""Inventories: the Helm releases and CRDs of a cluster, and the other programs that manage them.

The marks are those that Argo CD, Flux and OLM document: labels, annotations, owner references and the names under
which they apply fields.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

__all__ = ["ClusterInventory", "ForeignManager", "InstalledCrd", "InstalledRelease", "foreign_manager"]


class ForeignManager(msgspec.Struct, frozen=True, rename="camel"):
    """Another program that manages an object, and would undo or repeat what we do to it."""

    name: str
    """`Argo CD`, `Flux` or `OLM`."""
    owner: str = ""
    """Its own object that the mark refers to, such as `HelmRelease flux-system/cert-manager`."""

    def __str__(self) -> str:
        return f"{self.name} ({self.owner})" if self.owner else self.name


class InstalledRelease(msgspec.Struct, frozen=True, rename="camel"):
    """The newest revision of a Helm release."""

    name: str
    namespace: str
    revision: int
    status: str
    """Helm's own word, such as `deployed`; `unreadable` if the record could not be read."""
    chart: str = ""
    chart_version: str = ""
    app_version: str = ""
    last_deployed: str = ""
    ours: bool = False
    """True if this manager deployed the revision."""
    manager: ForeignManager | None = None


class InstalledCrd(msgspec.Struct, frozen=True, rename="camel"):
    """A CRD of a cluster."""

    name: str
    kind: str
    scope: str
    versions: tuple[str, ...]
    """The versions that are served."""
    storage_version: str
    stored_versions: tuple[str, ...]
    """Versions that objects may still be stored in."""
    release: str = ""
    """`namespace/name` of the Helm release that it belongs to, by its annotations."""
    manager: ForeignManager | None = None


class ClusterInventory(msgspec.Struct, frozen=True, rename="camel"):
    """The releases and CRDs of a cluster at one moment."""

    taken_at: datetime
    releases: tuple[InstalledRelease, ...] = ()
    crds: tuple[InstalledCrd, ...] = ()
    problems: tuple[str, ...] = ()
    """Sentences on what could not be read."""


_FIELD_MANAGERS = {
    "argocd-controller": "Argo CD",
    "argocd-application-controller": "Argo CD",
    "kustomize-controller": "Flux",
    "helm-controller": "Flux",
}
_OWNER_GROUPS = {
    "argoproj.io": "Argo CD",
    "helm.toolkit.fluxcd.io": "Flux",
    "kustomize.toolkit.fluxcd.io": "Flux",
    "operators.coreos.com": "OLM",
    "olm.operatorframework.io": "OLM",
}


def foreign_manager(metadata: Mapping[str, Any]) -> ForeignManager | None:
    """Return the other program that manages an object, by the marks in its metadata."""
    labels = _texts(metadata.get("labels"))
    annotations = _texts(metadata.get("annotations"))
    return (
        _argo(labels, annotations)
        or _flux(labels)
        or _olm(labels, annotations)
        or _by_owner(metadata.get("ownerReferences"))
        or _by_field_manager(metadata.get("managedFields"))
    )


def _argo(labels: Mapping[str, str], annotations: Mapping[str, str]) -> ForeignManager | None:
    # `app.kubernetes.io/instance` is Argo CD's mark too in old installations, but anybody sets it: Helm charts do.
    tracking = annotations.get("argocd.argoproj.io/tracking-id", "")
    application = tracking.partition(":")[0] or labels.get("argocd.argoproj.io/instance", "")
    return ForeignManager("Argo CD", f"Application {application}") if application else None


def _flux(labels: Mapping[str, str]) -> ForeignManager | None:
    for group, kind in (
        ("helm.toolkit.fluxcd.io", "HelmRelease"),
        ("kustomize.toolkit.fluxcd.io", "Kustomization"),
    ):
        if name := labels.get(f"{group}/name"):
            return ForeignManager("Flux", f"{kind} {labels.get(f'{group}/namespace', '')}/{name}")
    return None


def _olm(labels: Mapping[str, str], annotations: Mapping[str, str]) -> ForeignManager | None:
    if extension := labels.get("olm.operatorframework.io/owner-name"):
        return ForeignManager(
            "OLM", f"{labels.get('olm.operatorframework.io/owner-kind', '')} {extension}".strip()
        )
    if owner := labels.get("olm.owner"):
        return ForeignManager("OLM", f"{labels.get('olm.owner.kind', '')} {owner}".strip())
    for key in labels:
        if key.startswith("operators.coreos.com/"):
            return ForeignManager("OLM", f"Operator {key.partition('/')[2]}")
    alongside = [
        value
        for key, value in annotations.items()
        if key.startswith("operatorframework.io/installed-alongside-")
    ]
    if alongside:
        return ForeignManager("OLM", f"ClusterServiceVersion {alongside[0]}")
    return ForeignManager("OLM") if labels.get("olm.managed") == "true" else None


def _by_owner(references: Any) -> ForeignManager | None:
    for reference in references if isinstance(references, list) else ():
        group = str(reference.get("apiVersion", "")).partition("/")[0]
        if name := _OWNER_GROUPS.get(group):
            return ForeignManager(name, f"{reference.get('kind', '')} {reference.get('name', '')}")
    return None


def _by_field_manager(entries: Any) -> ForeignManager | None:
    for entry in entries if isinstance(entries, list) else ():
        if name := _FIELD_MANAGERS.get(str(entry.get("manager", ""))):
            return ForeignManager(name)
    return None


def _texts(mapping: Any) -> dict[str, str]:
    return {str(key): str(value) for key, value in mapping.items()} if isinstance(mapping, dict) else {}
