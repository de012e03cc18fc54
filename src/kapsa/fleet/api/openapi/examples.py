"""An example for each type of a request or a response. Tests decode every one as its type."""

import typing
from collections.abc import Mapping
from typing import Any

from kapsa.fleet.api.openapi.crd_examples import CRD_EXAMPLES
from kapsa.fleet.api.openapi.rollout_examples import ROLLOUT_EXAMPLES
from kapsa.fleet.api.problems import Problem
from kapsa.fleet.api.views import DeletionResult, ServerHealth, SessionView, SignInWithToken
from kapsa.fleet.domain.registry.clusters import ClusterHealth, ManagedCluster
from kapsa.fleet.domain.registry.inventory import ClusterInventory
from kapsa.fleet.domain.registry.operators import ManagedOperator, OperatorVersion
from kapsa.fleet.orchestrator.audit import AuditRecord
from kapsa.fleet.orchestrator.operator_health import OperatorHealthReport, OperatorOnCluster
from kapsa.fleet.orchestrator.pages import Page
from kapsa.fleet.orchestrator.registry.adoptions import AdoptionPlan, AdoptRelease
from kapsa.fleet.orchestrator.registry.clusters import ClusterResult, RegisterCluster, UpdateCluster
from kapsa.fleet.orchestrator.registry.operators import (
    AddVersion,
    RegisteredOperator,
    RegisterOperator,
    UpdateOperator,
)

__all__ = ["EXAMPLES", "example_of"]

_ID = "7f0c9b52-8f5f-4b0e-9d2a-7a4f6f1d2c11"
_AT = "2026-11-17T12:00:00Z"
_DIGEST = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_CHART = {"type": "http", "repository": "https://charts.example.com", "chart": "cert-manager"}
_OPERATOR = {
    "id": _ID,
    "name": "cert-manager",
    "namespace": "cert-manager",
    "source": _CHART,
    "values": {"replicaCount": 2},
    "environmentValues": {"Production": {"replicaCount": 3}},
    "clusterValues": {"prod-eu": {"replicaCount": 5}},
    "createdAt": _AT,
    "createdBy": "maria",
    "version": 1,
}
_VERSION = {
    "operatorId": _ID,
    "version": "1.19.1",
    "chartDigest": _DIGEST,
    "facts": {"crdsInCrds": ["certificates.cert-manager.io"], "kubeVersion": ">= 1.31.0-0"},
    "createdAt": _AT,
    "createdBy": "maria",
}
_HEALTH = {
    "condition": "Healthy",
    "kubernetesVersion": "v1.36.3",
    "nodes": 5,
    "nodesReady": 5,
    "latencyMs": 12.5,
    "lastChecked": _AT,
}
_CLUSTER = {
    "id": _ID,
    "name": "prod-eu",
    "environment": "Production",
    "labels": {"region": "eu"},
    "server": "https://203.0.113.7:6443",
    "health": _HEALTH,
    "createdAt": _AT,
    "createdBy": "ada",
    "windows": [{"days": ["Tuesday"], "start": "22:00", "duration": "PT4H", "timezone": "Europe/Prague"}],
    "version": 1,
}
_RELEASE = {
    "name": "cert-manager",
    "namespace": "cert-manager",
    "revision": 3,
    "status": "deployed",
    "chart": "cert-manager",
    "chartVersion": "1.19.1",
    "ours": True,
}
_ON_CLUSTER = {
    "clusterName": "prod-eu",
    "health": "Healthy",
    "controllerPods": 3,
    "webhookStatus": "Available",
    "crdReconciliation": "Active",
    "lastChecked": _AT,
    "version": "1.19.1",
    "revision": 3,
    "checks": [
        {
            "kind": "Pods",
            "evidence": "Healthy",
            "reason": "Passed",
            "message": "3 pods of 3 controllers are ready",
            "conclusive": False,
        }
    ],
}

EXAMPLES: dict[Any, Any] = {
    **ROLLOUT_EXAMPLES,
    **CRD_EXAMPLES,
    OperatorOnCluster: _ON_CLUSTER,
    OperatorHealthReport: {
        "operatorName": "cert-manager",
        "overallHealth": "Healthy",
        "clusters": [_ON_CLUSTER],
    },
    DeletionResult: {"notices": []},
    RegisterCluster: {
        "name": "prod-eu",
        "environment": "Production",
        "kubeconfig": "apiVersion: v1\nkind: Config\n",
        "labels": {"region": "eu"},
    },
    UpdateCluster: {"labels": {"region": "eu", "tier": "gold"}},
    ManagedCluster: _CLUSTER,
    ClusterResult: {"cluster": _CLUSTER, "notices": []},
    ClusterHealth: _HEALTH,
    ClusterInventory: {"takenAt": _AT, "releases": [_RELEASE], "crds": [], "problems": []},
    AdoptRelease: {"operator": "cert-manager", "dryRun": True},
    AdoptionPlan: {
        "cluster": "prod-eu",
        "operator": "cert-manager",
        "namespace": "cert-manager",
        "release": "cert-manager",
        "revision": 3,
        "version": "1.19.1",
        "chartDigest": _DIGEST,
        "differences": [],
        "notices": [],
        "adopted": False,
    },
    Problem: {
        "type": "about:blank",
        "title": "Bad Request",
        "status": 400,
        "detail": "/canaryConfig/initialPercentage: Expected `int` >= 1",
        "errors": [{"path": "/canaryConfig/initialPercentage", "message": "Expected `int` >= 1"}],
    },
    ServerHealth: {"status": "Healthy", "version": "0.1.0", "database": "Reachable"},
    SignInWithToken: {"token": "eyJhbGciOiJFZERTQSJ9.e30.c2lnbmF0dXJl"},
    SessionView: {
        "subject": "maria",
        "roles": ["Operator"],
        "environments": [],
        "email": "maria@example.com",
        "expiresAt": _AT,
        "csrfToken": "5f2d0c",
    },
    RegisterOperator: {
        "name": "cert-manager",
        "namespace": "cert-manager",
        "source": _CHART,
        "version": "1.19.1",
        "values": {"replicaCount": 2},
    },
    UpdateOperator: {"values": {"replicaCount": 3}},
    AddVersion: {"version": "1.19.2"},
    ManagedOperator: _OPERATOR,
    OperatorVersion: _VERSION,
    RegisteredOperator: {"operator": _OPERATOR, "version": _VERSION, "warnings": []},
    AuditRecord: {
        "id": 42,
        "recordedAt": _AT,
        "action": "operator.register",
        "objectKind": "operator",
        "objectId": _ID,
        "actor": "maria",
        "payload": {"name": "cert-manager", "version": "1.19.1"},
        "link": 41,
    },
}


def example_of(kind: Any) -> Any:
    """Return the example of a type. A page has one item."""
    if typing.get_origin(kind) is Page:
        return {"items": [example_of(typing.get_args(kind)[0])], "nextCursor": ""}
    if isinstance(EXAMPLES[kind], Mapping):
        return dict(EXAMPLES[kind])
    return EXAMPLES[kind]
