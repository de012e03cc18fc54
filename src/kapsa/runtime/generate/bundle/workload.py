"""The objects that run an operator: its Deployment, its Services and what watches over them.

Each is made once, from the facts of the operator and the settings of an installation. In plain manifests a setting is
a value, in the chart an expression that Helm replaces, so the two cannot differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from kapsa.runtime.generate.bundle.facts import BundleFacts
from kapsa.runtime.generate.rbac import rbac_manifests

__all__ = [
    "RESOURCES",
    "InstallationSettings",
    "access",
    "definitions",
    "deployment",
    "disruption_budget",
    "service_monitor",
    "services",
]

RESOURCES = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}
"""No limit of the CPU: an operator that is throttled cannot renew its lease in time."""
_NAME = "app.kubernetes.io/name"
_COMPONENT = "app.kubernetes.io/component"
_CERTIFICATES = "webhook-certificates"
_SHUTDOWN_MARGIN = 15
"""Seconds after `shutdown_grace` in which the lease is released and connections are closed."""


class InstallationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that differ between two installations of one operator. Each may be an expression of the chart."""

    namespace: str
    labels: Mapping[str, str]
    """The labels of every object, next to the name."""
    image: str
    pull_policy: str = "IfNotPresent"
    pull_secrets: Any = ()
    replicas: Any = 1
    args: Any = ()
    env: Any = ()
    resources: Any = msgspec.field(default_factory=lambda: RESOURCES)
    node_selector: Any = None
    tolerations: Any = None
    affinity: Any = None
    priority_class: str = ""
    pod_annotations: Any = None
    account_annotations: Any = None
    certificate_secret: str = ""
    monitor_interval: str = "30s"
    monitor_labels: Any = None


def definitions(
    facts: BundleFacts, settings: InstallationSettings, annotations: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """Return the CRDs, which call for a conversion in the namespace of this installation."""
    labels = _labels(facts, settings)
    return [_definition(crd, settings.namespace, labels, annotations or {}) for crd in facts.crds]


def _definition(
    crd: Mapping[str, Any], namespace: str, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> dict[str, Any]:
    metadata = {**crd["metadata"], "labels": {**crd["metadata"].get("labels", {}), **labels}}
    if annotations:
        metadata["annotations"] = {**metadata.get("annotations", {}), **annotations}
    spec = dict(crd["spec"])
    conversion = spec.get("conversion", {})
    if conversion.get("strategy") == "Webhook":
        webhook = dict(conversion["webhook"])
        service = {**webhook["clientConfig"]["service"], "namespace": namespace}
        webhook["clientConfig"] = {**webhook["clientConfig"], "service": service}
        spec["conversion"] = {**conversion, "webhook": webhook}
    return {**crd, "metadata": metadata, "spec": spec}


def access(facts: BundleFacts, settings: InstallationSettings) -> list[dict[str, Any]]:
    """Return the service account, its roles and their bindings."""
    made = rbac_manifests(facts.rights, name=facts.name, namespace=settings.namespace)
    for manifest in made:
        manifest["metadata"] = {
            **manifest["metadata"],
            "labels": _labels(facts, settings),
            **(
                _present(annotations=settings.account_annotations)
                if manifest["kind"] == "ServiceAccount"
                else {}
            ),
        }
    return made


def deployment(facts: BundleFacts, settings: InstallationSettings) -> dict[str, Any]:
    """Return the Deployment. Without leader election, the old pod ends before the new one starts."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(facts, settings),
        "spec": {
            "replicas": settings.replicas,
            "strategy": {"type": "RollingUpdate" if facts.elects else "Recreate"},
            "selector": {"matchLabels": {_NAME: facts.name}},
            "template": {
                "metadata": {
                    "labels": {_NAME: facts.name},
                    **_present(annotations=settings.pod_annotations),
                },
                "spec": _pod(facts, settings),
            },
        },
    }


def _pod(facts: BundleFacts, settings: InstallationSettings) -> dict[str, Any]:
    return {
        "serviceAccountName": facts.name,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": math.ceil(facts.shutdown_grace) + _SHUTDOWN_MARGIN,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "fsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        **_present(
            imagePullSecrets=settings.pull_secrets,
            priorityClassName=settings.priority_class,
            nodeSelector=settings.node_selector,
            tolerations=settings.tolerations,
            affinity=settings.affinity,
        ),
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {_NAME: facts.name}},
            }
        ],
        "containers": [_container(facts, settings)],
        "volumes": [
            {"name": "scratch", "emptyDir": {"sizeLimit": "64Mi"}},
            *(
                [{"name": _CERTIFICATES, "secret": {"secretName": settings.certificate_secret}}]
                if _mounts_certificates(facts)
                else []
            ),
        ],
    }


def _container(facts: BundleFacts, settings: InstallationSettings) -> dict[str, Any]:
    mounts: list[dict[str, Any]] = [{"name": "scratch", "mountPath": "/tmp"}]  # noqa: S108 - the pod's own
    if facts.webhooks is not None and _mounts_certificates(facts):
        directory = facts.webhooks.certificate_directory
        mounts.append({"name": _CERTIFICATES, "mountPath": directory, "readOnly": True})
    return {
        "name": "operator",
        "image": settings.image,
        "imagePullPolicy": settings.pull_policy,
        **_present(args=settings.args, env=settings.env),
        "ports": [{"name": name, "containerPort": port} for name, port in _ports(facts).items()],
        **_probes(facts),
        "resources": settings.resources,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }


def _ports(facts: BundleFacts) -> dict[str, int]:
    """Return the ports by name. Probes on the port of the metrics share its name."""
    ports = {}
    if facts.metrics is not None:
        ports["metrics"] = facts.metrics.port
    if facts.health is not None and facts.health.port not in ports.values():
        ports["health"] = facts.health.port
    if facts.webhooks is not None:
        ports["webhooks"] = facts.webhooks.port
    return ports


def _probes(facts: BundleFacts) -> dict[str, Any]:
    if facts.health is None:
        return {}
    port = next(name for name, port in _ports(facts).items() if port == facts.health.port)
    live, ready = facts.health.paths
    return {
        "livenessProbe": {"httpGet": {"path": live, "port": port}, "timeoutSeconds": 5},
        "readinessProbe": {"httpGet": {"path": ready, "port": port}, "timeoutSeconds": 5},
    }


def _mounts_certificates(facts: BundleFacts) -> bool:
    return facts.webhooks is not None and bool(facts.webhooks.certificate_directory)


def services(facts: BundleFacts, settings: InstallationSettings) -> list[dict[str, Any]]:
    """Return the Services of the metrics and of the webhooks."""
    made = []
    if facts.metrics is not None:
        port = {"name": "metrics", "port": facts.metrics.port, "targetPort": "metrics"}
        made.append(_service(facts, settings, f"{facts.name}-metrics", "metrics", port))
    if facts.webhooks is not None:
        port = {"name": "webhooks", "port": facts.webhooks.service_port, "targetPort": "webhooks"}
        made.append(_service(facts, settings, facts.webhooks.service, "webhooks", port))
    return made


def _service(
    facts: BundleFacts, settings: InstallationSettings, name: str, component: str, port: dict[str, Any]
) -> dict[str, Any]:
    metadata = _metadata(facts, settings, name)
    metadata["labels"] = {**metadata["labels"], _COMPONENT: component}
    spec = {"selector": {_NAME: facts.name}, "ports": [port]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def disruption_budget(facts: BundleFacts, settings: InstallationSettings) -> dict[str, Any]:
    """Return the budget by which a drain of nodes leaves one replica running."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(facts, settings),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {_NAME: facts.name}}},
    }


def service_monitor(facts: BundleFacts, settings: InstallationSettings) -> Iterable[dict[str, Any]]:
    """Yield the ServiceMonitor by which the Prometheus operator scrapes the metrics, if there are any."""
    if facts.metrics is None:
        return
    metadata = _metadata(facts, settings)
    if settings.monitor_labels is not None:
        metadata["labels"] = settings.monitor_labels
    endpoint = {"port": "metrics", "path": facts.metrics.paths[0], "interval": settings.monitor_interval}
    yield {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": metadata,
        "spec": {
            "selector": {"matchLabels": {_NAME: facts.name, _COMPONENT: "metrics"}},
            "endpoints": [endpoint],
        },
    }


def _metadata(facts: BundleFacts, settings: InstallationSettings, name: str = "") -> dict[str, Any]:
    return {
        "name": name or facts.name,
        "namespace": settings.namespace,
        "labels": _labels(facts, settings),
    }


def _labels(facts: BundleFacts, settings: InstallationSettings) -> dict[str, str]:
    return {_NAME: facts.name, **settings.labels}


def _present(**fields: Any) -> dict[str, Any]:
    """Return the fields that are set. Those of the chart always are: they are expressions."""
    return {name: each for name, each in fields.items() if each}
