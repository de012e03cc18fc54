"""Marks of other programs on objects, as those programs document them."""

from __future__ import annotations

from typing import Any

import pytest

from kapsa.fleet.domain.registry.inventory import foreign_manager


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (
            {"annotations": {"argocd.argoproj.io/tracking-id": "shop:apps/Deployment:shop/web"}},
            "Argo CD (Application shop)",
        ),
        ({"labels": {"argocd.argoproj.io/instance": "shop"}}, "Argo CD (Application shop)"),
        ({"managedFields": [{"manager": "kubectl"}, {"manager": "argocd-controller"}]}, "Argo CD"),
        (
            {"labels": {"helm.toolkit.fluxcd.io/name": "web", "helm.toolkit.fluxcd.io/namespace": "flux"}},
            "Flux (HelmRelease flux/web)",
        ),
        (
            {"labels": {"kustomize.toolkit.fluxcd.io/name": "infra", "kustomize.toolkit.fluxcd.io/namespace": "flux"}},
            "Flux (Kustomization flux/infra)",
        ),
        ({"managedFields": [{"manager": "kustomize-controller"}]}, "Flux"),
        (
            {"labels": {"olm.owner": "cert-manager.v1.14.0", "olm.owner.kind": "ClusterServiceVersion"}},
            "OLM (ClusterServiceVersion cert-manager.v1.14.0)",
        ),
        ({"labels": {"operators.coreos.com/cert-manager.operators": ""}}, "OLM (Operator cert-manager.operators)"),
        ({"labels": {"olm.managed": "true"}}, "OLM"),
        (
            {"annotations": {"operatorframework.io/installed-alongside-0123456789abcdef": "operators/etcd.v1"}},
            "OLM (ClusterServiceVersion operators/etcd.v1)",
        ),
        (
            {"labels": {"olm.operatorframework.io/owner-name": "argo", "olm.operatorframework.io/owner-kind": "ClusterExtension"}},
            "OLM (ClusterExtension argo)",
        ),
        (
            {"ownerReferences": [{"apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion", "name": "etcd.v1"}]},
            "OLM (ClusterServiceVersion etcd.v1)",
        ),
    ],
)  # fmt: skip
def test_another_manager_is_named_with_its_own_object(metadata: dict[str, Any], expected: str) -> None:
    assert str(foreign_manager(metadata)) == expected


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"labels": None, "annotations": None, "ownerReferences": None, "managedFields": None},
        {"labels": {"app.kubernetes.io/instance": "web", "app.kubernetes.io/managed-by": "Helm"}},
        {"annotations": {"meta.helm.sh/release-name": "web"}},
        {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web"}]},
        {"managedFields": [{"manager": "helm"}, {"manager": "kapsa-fleet"}]},
        {"labels": {"olm.managed": "false"}},
    ],
)
def test_helm_and_people_are_not_another_manager(metadata: dict[str, Any]) -> None:
    assert foreign_manager(metadata) is None
