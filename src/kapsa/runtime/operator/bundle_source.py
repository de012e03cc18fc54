"""The source of a bundle: the facts of an operator, and the refusal of one that cannot run in a cluster as declared."""

from __future__ import annotations

import ipaddress

from kapsa.runtime.generate.bundle.facts import BundleFacts, PodPort, UnbundlableError, WebhookEndpoint
from kapsa.runtime.operator.declaration import OperatorDeclaration
from kapsa.runtime.webhooks.webhooks import Webhooks

__all__ = ["bundle_facts"]


def bundle_facts(operator: OperatorDeclaration, *, name: str = "") -> BundleFacts:
    """Return what a bundle of the operator is made from. Raises UnbundlableError for what a pod cannot serve."""
    if operator.clusters is not None:
        raise UnbundlableError(
            "the operator works in other clusters (clusters=), and a bundle is for one: install the output of "
            "`kapsa crd` and `kapsa rbac` there"
        )
    return BundleFacts(
        name=name or operator.name,
        crds=tuple(operator.definitions()),
        rights=operator.rights(),
        metrics=_endpoint(operator, "metrics_port", operator.metrics_port, operator.metrics_path),
        health=_endpoint(
            operator, "health_port", operator.health_port, operator.liveness_path, operator.readiness_path
        ),
        webhooks=_webhook_endpoint(operator.webhooks),
        shutdown_grace=operator.shutdown_grace,
    )


def _endpoint(operator: OperatorDeclaration, setting: str, port: int | None, *paths: str) -> PodPort | None:
    if port is None:
        return None
    if port == 0:
        raise UnbundlableError(f"{setting} is 0, which is any free port: set the port that pods listen on")
    if _is_loopback(operator.host):
        raise UnbundlableError(
            f"host is {operator.host!r}, which nothing outside the pod reaches: leave it out, or set {setting} to None"
        )
    return PodPort(port, paths)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _webhook_endpoint(webhooks: Webhooks | None) -> WebhookEndpoint | None:
    if webhooks is None or not webhooks.served:
        return None
    if not webhooks.service:
        raise UnbundlableError(
            f"the webhooks are served at {webhooks.url}, outside the cluster: set service= instead of url= to bundle "
            "the operator"
        )
    if webhooks.port == 0:
        raise UnbundlableError(
            "the port of the webhooks is 0, which is any free port: set the port that pods listen on"
        )
    return WebhookEndpoint(
        service=webhooks.service,
        service_port=webhooks.service_port,
        port=webhooks.port,
        namespace=webhooks.namespace,
        certificate_directory=str(webhooks.cert_dir) if webhooks.cert_dir is not None else "",
    )
