"""Manifests: everything that the operator needs in a cluster, from its kinds, its rights and its settings."""

from __future__ import annotations

from typing import Any

from kapsa.environments.names import MANAGED_BY
from kapsa.environments.resources import KINDS
from kapsa.environments.settings import Settings
from kapsa.runtime import Operator, custom_resource_definitions, rbac_manifests

__all__ = ["NAME", "crds", "installation"]

NAME = "kapsa-operator"
"""The name of the Deployment, the service account and the roles."""

_LABELS = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/part-of": "kapsa"}
_WRITABLE = ("/var/cache/kapsa", "/tmp")  # noqa: S108 - the only places where the container may write


def crds() -> list[dict[str, Any]]:
    """The CustomResourceDefinitions of all kinds."""
    return custom_resource_definitions(KINDS)


def installation(
    operator: Operator, settings: Settings, *, image: str, replicas: int = 2
) -> list[dict[str, Any]]:
    """All objects, in the order to create them."""
    return [
        *crds(),
        _namespace(settings),
        *rbac_manifests(operator.rights(), name=NAME, namespace=settings.namespace),
        _deployment(settings, image, replicas),
        _metrics_service(settings),
    ]


def _namespace(settings: Settings) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": settings.namespace,
            "labels": {
                "app.kubernetes.io/part-of": "kapsa",
                "pod-security.kubernetes.io/enforce": "restricted",
            },
        },
    }


def _metadata(settings: Settings, name: str) -> dict[str, Any]:
    return {"name": name, "namespace": settings.namespace, "labels": {**_LABELS, MANAGED_BY: "kapsa"}}


def _deployment(settings: Settings, image: str, replicas: int) -> dict[str, Any]:
    pod = {
        "serviceAccountName": NAME,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "fsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(settings, image)],
        "volumes": [{"name": f"writable-{number}", "emptyDir": {}} for number in range(len(_WRITABLE))],
        "terminationGracePeriodSeconds": 40,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(settings, NAME),
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": _LABELS},
            "template": {"metadata": {"labels": _LABELS}, "spec": pod},
        },
    }


def _container(settings: Settings, image: str) -> dict[str, Any]:
    variables = {
        "KAPSA_NAMESPACE": settings.namespace,
        "KAPSA_METRICS_PORT": str(settings.metrics_port),
        "KAPSA_METRICS_ENABLED": str(settings.metrics_enabled).lower(),
        "KAPSA_LOG_LEVEL": settings.log_level,
        "KAPSA_LOG_FORMAT": settings.log_format,
    }
    return {
        "name": "operator",
        "image": image,
        "args": ["environments", "run"],
        "env": [{"name": name, "value": value} for name, value in variables.items()],
        "ports": [{"name": "metrics", "containerPort": settings.metrics_port}],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "metrics"}, "periodSeconds": 10},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "metrics"}, "periodSeconds": 10},
        "resources": {
            "requests": {"cpu": "100m", "memory": "128Mi"},
            "limits": {"memory": "1Gi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": f"writable-{number}", "mountPath": path} for number, path in enumerate(_WRITABLE)
        ],
    }


def _metrics_service(settings: Settings) -> dict[str, Any]:
    port = {"name": "metrics", "port": settings.metrics_port, "targetPort": "metrics"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(settings, f"{NAME}-metrics"),
        "spec": {"selector": _LABELS, "ports": [port]},
    }
