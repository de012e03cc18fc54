"""The installation: the manifests that install the operator, from its kinds, its rights and its settings.

`installation` returns plain objects. The chart has templates of its own, and includes the files from
`chart_files`, which follow from the code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from kapsa.environments.admission import validators
from kapsa.environments.names import MANAGED_BY
from kapsa.environments.operator import make_operator
from kapsa.environments.resources import KINDS
from kapsa.environments.settings import PREFIX, Settings
from kapsa.environments.tenancy.roles import people_roles
from kapsa.runtime import Grant, custom_resource_definitions, grants, rbac_manifests, to_yaml

__all__ = ["NAME", "chart_files", "crds", "installation"]

NAME = "kapsa-operator"
"""The name of the Deployment, the service account and the roles."""
GIT_WEBHOOK_SECRET = "kapsa-operator-git-webhooks"  # noqa: S105 - the name of a Secret
WEBHOOKS_CERTIFICATE = "kapsa-operator-webhooks-certificate"

_LABELS = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/part-of": "kapsa"}
_CACHE = "/var/cache/kapsa"
_WRITABLE = {"cache": _CACHE, "scratch": "/tmp"}  # noqa: S108 - the only places where the container may write
_CERTIFICATES = "/etc/kapsa/webhooks"
_GENERATED = "# Generated from the code by tools/chart_files.py; do not edit.\n"


def crds() -> list[dict[str, Any]]:
    """Return the CustomResourceDefinitions of all kinds."""
    return custom_resource_definitions(KINDS)


def installation(settings: Settings, *, image: str, replicas: int = 2) -> list[dict[str, Any]]:
    """Return all objects, in the order in which to create them."""
    rights = make_operator(settings).rights()
    return [
        *crds(),
        _namespace(settings),
        *rbac_manifests(rights, name=NAME, namespace=settings.namespace),
        *people_roles(),
        _deployment(settings, image, replicas),
        *([_disruption_budget(settings)] if replicas > 1 else []),
        *(_service(settings, name, port, target) for name, port, target in _ports(settings)),
    ]


def chart_files() -> dict[str, str]:
    """Return the files of the chart that are generated from the code, by name."""
    plain, checked = _rights(Settings()), _rights(Settings(webhooks_enabled=True))
    rights = {
        **plain,
        "webhooks": {scope: [rule for rule in checked[scope] if rule not in plain[scope]] for scope in plain},
    }
    webhooks = [each.registration({"service": {"path": each.path}}) for each in validators(Settings())]
    return {
        "crds.yaml": _GENERATED + to_yaml(crds()),
        "rights.yaml": _GENERATED + to_yaml([rights]),
        "roles.yaml": _GENERATED + to_yaml(people_roles()),
        "settings.txt": "".join(f"{field.name.upper()}\n" for field in msgspec.structs.fields(Settings)),
        "webhooks.yaml": _GENERATED + to_yaml([webhooks]),
    }


def _rights(settings: Settings) -> dict[str, list[dict[str, Any]]]:
    """Return the rules for all namespaces, and those for the operator's own."""
    made = grants(make_operator(settings).rights(), namespace=settings.namespace)

    def rules(fits: Grant) -> list[dict[str, Any]]:
        return [rule.to_dict() for rule in fits.rules]

    return {
        "everywhere": [rule for each in made if each.namespace is None for rule in rules(each)],
        "home": [rule for each in made if each.namespace is not None for rule in rules(each)],
    }


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
    volumes: list[dict[str, Any]] = [{"name": name, "emptyDir": {}} for name in _WRITABLE]
    if settings.webhooks_enabled and settings.webhook_cert_directory is not None:
        volumes.append({"name": "certificates", "secret": {"secretName": WEBHOOKS_CERTIFICATE}})
    pod = {
        "serviceAccountName": NAME,
        # Otherwise a Service called kapsa-metrics would set the variable KAPSA_METRICS_PORT.
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "fsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(settings, image)],
        "volumes": volumes,
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": _LABELS},
            }
        ],
        "terminationGracePeriodSeconds": 45,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(settings, NAME),
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": _LABELS},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1},
            },
            "template": {"metadata": {"labels": _LABELS}, "spec": pod},
        },
    }


def _container(settings: Settings, image: str) -> dict[str, Any]:
    mounts: list[dict[str, Any]] = [{"name": name, "mountPath": path} for name, path in _WRITABLE.items()]
    if settings.webhooks_enabled and settings.webhook_cert_directory is not None:
        mounts.append({"name": "certificates", "mountPath": _CERTIFICATES, "readOnly": True})

    def probe(path: str) -> dict[str, Any]:
        return {"httpGet": {"path": path, "port": "metrics"}, "periodSeconds": 10, "timeoutSeconds": 5}

    return {
        "name": "operator",
        "image": image,
        "args": ["environments", "run"],
        "env": _variables(settings),
        "ports": [{"name": name, "containerPort": port} for name, port in _container_ports(settings).items()],
        "livenessProbe": probe("/healthz"),
        "readinessProbe": probe("/readyz"),
        "resources": {
            "requests": {"cpu": "100m", "memory": "256Mi"},
            "limits": {"memory": "2Gi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }


def _variables(settings: Settings) -> list[dict[str, Any]]:
    """Return the settings that differ from their defaults. Secrets, and values that the pod determines, are
    references."""
    own = {"namespace": "metadata.namespace"}
    made: list[dict[str, Any]] = [
        {"name": f"{PREFIX}{name.upper()}", "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in own.items()
    ]
    in_the_pod = msgspec.structs.replace(
        settings,
        cache_directory=Path(_CACHE),
        webhook_cert_directory=settings.webhook_cert_directory and Path(_CERTIFICATES),
    )
    for name, text in in_the_pod.changed().items():
        if name == "git_webhook_secret":
            source = {"secretKeyRef": {"name": GIT_WEBHOOK_SECRET, "key": "secret"}}
            made.append({"name": f"{PREFIX}{name.upper()}", "valueFrom": source})
        elif name not in own:
            made.append({"name": f"{PREFIX}{name.upper()}", "value": text})
    return made


def _container_ports(settings: Settings) -> dict[str, int]:
    ports = {"metrics": settings.metrics_port}
    if settings.webhooks_enabled:
        ports["webhooks"] = settings.webhook_port
    if settings.git_webhook_port is not None:
        ports["git-webhooks"] = settings.git_webhook_port
    return ports


def _ports(settings: Settings) -> list[tuple[str, int, str]]:
    """Return the Services: name, port, and the container port behind it."""
    public = {
        "metrics": (f"{NAME}-metrics", settings.metrics_port),
        "webhooks": (settings.webhook_service, 443),
        "git-webhooks": (f"{NAME}-git-webhooks", 80),
    }
    return [(*public[target], target) for target in _container_ports(settings)]


def _service(settings: Settings, name: str, port: int, target: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(settings, name),
        "spec": {"selector": _LABELS, "ports": [{"name": target, "port": port, "targetPort": target}]},
    }


def _disruption_budget(settings: Settings) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(settings, NAME),
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": _LABELS},
        },
    }
