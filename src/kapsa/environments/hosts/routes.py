"""Routes from a host to a Service, as an Ingress or an HTTPRoute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from kapsa.adapters.errors import Refused
from kapsa.environments.hosts.routing_rules import annotation_refusal, issuer_annotation, path_refusal
from kapsa.environments.resources.environment import EnvironmentIngress

__all__ = [
    "CERTIFICATE",
    "GATEWAY",
    "HTTP_ROUTE",
    "INGRESS",
    "HostRoute",
    "check_ingress",
]

INGRESS = "networking.k8s.io/v1/Ingress"
HTTP_ROUTE = "gateway.networking.k8s.io/v1/HTTPRoute"
GATEWAY = "gateway.networking.k8s.io/v1/Gateway"
CERTIFICATE = "cert-manager.io/v1/Certificate"

_OURS = ("cert-manager.io/", "acme.cert-manager.io/", "catalyst.dev/", "kubernetes.io/", "applyset.")
"""Prefixes of annotations that only the operator sets."""


class HostRoute(msgspec.Struct, frozen=True, kw_only=True):
    """A host and the Service that receives its requests."""

    name: str
    """The name of the object."""
    host: str
    service: str
    port: int
    path: str = "/"
    kind: Literal["Ingress", "HTTPRoute"] = "Ingress"
    class_name: str = ""
    """The ingress class; the cluster's default if empty."""
    gateway: str = ""
    """The Gateway of an HTTPRoute, as namespace/name."""
    tls: bool = True
    """True to serve HTTPS. For an HTTPRoute, the Gateway terminates TLS."""
    tls_secret: str = ""
    """The Secret with the certificate; if empty, the controller uses its default certificate."""
    issuer: tuple[str, str] | None = None
    """The kind and name of the cert-manager issuer that fills the Secret."""
    annotations: Mapping[str, str] = {}

    @property
    def url(self) -> str:
        """The URL of the route."""
        scheme = "https" if self.tls else "http"
        return f"{scheme}://{self.host}{self.path if self.path != '/' else ''}"

    def manifest(self) -> dict[str, Any]:
        """Return the Ingress or HTTPRoute."""
        return self._http_route() if self.kind == "HTTPRoute" else self._ingress()

    def _ingress(self) -> dict[str, Any]:
        backend = {"service": {"name": self.service, "port": {"number": self.port}}}
        rule = {
            "host": self.host,
            "http": {"paths": [{"path": self.path, "pathType": "Prefix", "backend": backend}]},
        }
        spec: dict[str, Any] = {"rules": [rule]}
        if self.class_name:
            spec["ingressClassName"] = self.class_name
        if self.tls:
            spec["tls"] = [
                {"hosts": [self.host], **({"secretName": self.tls_secret} if self.tls_secret else {})}
            ]
        issuer = issuer_annotation(self.issuer if self.tls else None)
        return {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "Ingress",
            "metadata": {"name": self.name, "annotations": {**self.annotations, **issuer}},
            "spec": spec,
        }

    def _http_route(self) -> dict[str, Any]:
        namespace, _, gateway = self.gateway.partition("/")
        rule = {
            "matches": [{"path": {"type": "PathPrefix", "value": self.path}}],
            "backendRefs": [{"name": self.service, "port": self.port}],
        }
        return {
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "HTTPRoute",
            "metadata": {"name": self.name, "annotations": dict(self.annotations)},
            "spec": {
                "parentRefs": [{"name": gateway, "namespace": namespace}],
                "hostnames": [self.host],
                "rules": [rule],
            },
        }


def check_ingress(ingress: EnvironmentIngress, *, host: str | None, namespace: str) -> None:
    """Check the settings of a tenant for a route.

    `host` is the environment's host; None while it has none, when an annotation may name any host. Raises
    Refused if the path or an annotation breaks a rule.
    """
    if why := path_refusal(ingress.path):
        raise Refused(
            f"ingress.path: {why}", reason="IngressPathRefused", hint="Change it in the Environment."
        )
    if refused := list(_refused_annotations(ingress.annotations, host, namespace)):
        raise Refused(
            f"ingress.annotations: {'; '.join(refused)}",
            reason="AnnotationRefused",
            hint="Remove it from the Environment.",
        )


def _refused_annotations(annotations: Mapping[str, str], host: str | None, namespace: str) -> Iterator[str]:
    for name, value in sorted(annotations.items()):
        hosts = [host] if host is not None else [each.strip() for each in value.split(",")]
        if name.startswith(_OURS):
            yield f"annotation {name} may only be set by the operator"
        elif why := annotation_refusal(name, value, hosts=hosts, namespace=namespace):
            yield why
