"""The objects of a PreviewEnvironment: the workload that runs its image, and the route to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from kapsa.environments.names import OWNER
from kapsa.environments.resources import PreviewEnvironment
from kapsa.environments.settings import Settings
from kapsa.environments.tenancy.network import SOLVER_PORT, cluster_dns, ingress_controller, internet

__all__ = ["APP_PORT", "MANAGED_LABELS", "PreviewObjects", "namespace_of"]

MANAGED_LABELS = {"managed-by": "preview-operator"}
APP_PORT = 8000
SERVICE_PORT = 80
_PROBE = {"httpGet": {"path": "/", "port": APP_PORT}, "periodSeconds": 10, "timeoutSeconds": 5}


def namespace_of(preview: PreviewEnvironment) -> str:
    """Return the name of the namespace for a preview."""
    return f"preview-pr-{preview.spec.pr_number}"


class PreviewObjects(msgspec.Struct, frozen=True):
    """Names and manifests of one preview."""

    preview: PreviewEnvironment
    settings: Settings

    @property
    def stem(self) -> str:
        return f"pr-{self.preview.spec.pr_number}"

    @property
    def namespace(self) -> str:
        return namespace_of(self.preview)

    @property
    def host(self) -> str:
        return f"{self.stem}.{self.settings.preview_environment_domain}"

    @property
    def ingress_name(self) -> str:
        return f"{self.stem}-ingress"

    @property
    def url(self) -> str:
        return f"https://{self.host}"

    @property
    def image(self) -> str:
        return f"{self.preview.spec.image}:{self.preview.spec.image_tag}"

    @property
    def labels(self) -> dict[str, str]:
        """The labels of every object of this preview."""
        return {**MANAGED_LABELS, "pr-number": str(self.preview.spec.pr_number)}

    @property
    def namespace_labels(self) -> dict[str, str]:
        return {**self.labels, "pod-security.kubernetes.io/enforce": "baseline"}

    def _metadata(self, name: str, annotations: dict[str, str] | None = None) -> dict[str, Any]:
        owner = f"{self.preview.namespace}/{self.preview.name}"
        return {
            "name": name,
            "namespace": self.namespace,
            "labels": self.labels,
            "annotations": {**(annotations or {}), OWNER: owner},
        }

    def network_policy(self, api_server: Sequence[str]) -> dict[str, Any]:
        """Return the policy: no access from other tenants, nor to anything else in the cluster.

        `api_server` has the address ranges of the API server.
        """
        from_outside = [{"protocol": "TCP", "port": port} for port in (APP_PORT, SOLVER_PORT)]
        same_namespace: dict[str, Any] = {"podSelector": {}}
        dns = [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]
        return {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": self._metadata(f"{self.stem}-netpol"),
            "spec": {
                "podSelector": {},
                "policyTypes": ["Ingress", "Egress"],
                "ingress": [
                    {"from": [same_namespace]},
                    {"from": [ingress_controller(self.settings)], "ports": from_outside},
                ],
                "egress": [
                    {"to": [same_namespace]},
                    {"to": cluster_dns(), "ports": dns},
                    {"to": internet(self.settings, api_server)},
                ],
            },
        }

    def deployment(self) -> dict[str, Any]:
        """Return the Deployment that runs the image."""
        container = {
            "name": "app",
            "image": self.image,
            "ports": [{"name": "http", "containerPort": APP_PORT}],
            "resources": {
                "requests": {"cpu": "100m", "memory": "128Mi", "ephemeral-storage": "128Mi"},
                "limits": {"cpu": "250m", "memory": "256Mi", "ephemeral-storage": "2Gi"},
            },
            "readinessProbe": {**_PROBE, "initialDelaySeconds": 2},
            "livenessProbe": {**_PROBE, "initialDelaySeconds": 10},
        }
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": self._metadata(f"{self.stem}-app"),
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"app": f"{self.stem}-app"}},
                "template": {
                    "metadata": {"labels": {**self.labels, "app": f"{self.stem}-app"}},
                    # The code of a pull request must not reach the API server with a token.
                    "spec": {"automountServiceAccountToken": False, "containers": [container]},
                },
            },
        }

    def service(self) -> dict[str, Any]:
        """Return the Service of its pod."""
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": self._metadata(f"{self.stem}-svc"),
            "spec": {
                "type": "ClusterIP",
                "selector": {"app": f"{self.stem}-app"},
                "ports": [{"name": "http", "port": SERVICE_PORT, "protocol": "TCP", "targetPort": APP_PORT}],
            },
        }

    def ingress(self) -> dict[str, Any]:
        """Return the Ingress that routes HTTPS requests to its Service."""
        issuer = self.settings.preview_environment_issuer
        annotations = {"cert-manager.io/cluster-issuer": issuer} if issuer else {}
        secured: dict[str, Any] = {"hosts": [self.host]}
        if issuer:  # without one nothing fills the Secret, and the controller uses its default certificate
            secured["secretName"] = f"{self.stem}-tls"
        backend = {"service": {"name": f"{self.stem}-svc", "port": {"number": SERVICE_PORT}}}
        return {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "Ingress",
            "metadata": self._metadata(self.ingress_name, annotations),
            "spec": {
                "ingressClassName": self.settings.ingress_class,
                "tls": [secured],
                "rules": [
                    {
                        "host": self.host,
                        "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]},
                    }
                ],
            },
        }
