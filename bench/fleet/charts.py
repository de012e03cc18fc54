"""The operators of the fleet: a chart with a controller, a CRD and a webhook, and its release as Helm stores it.

Each operator has its own chart with plain objects, so that its manifest is the same before and after rendering.
"""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import msgspec

from kapsa.adapters.helm.release_secret import RELEASE_SECRET, SERVER_SIDE
from kapsa.adapters.testing.chart_server import pack_chart

FIRST_VERSION = "1.0.0"
"""The version that is installed when the managers start."""
UPGRADES = ("1.1.0", "1.2.0")
"""The version that each load deploys: one for the first load, another for the second."""
_GROUP = "bench.kapsa.dev"


class WebhookAddress(msgspec.Struct, frozen=True):
    """The server that answers the webhooks of all operators."""

    url: str
    ca_bundle: str
    """The certificate of its authority, in base64."""


def group_of(operator: str) -> str:
    """Return the API group of an operator's resources: no two operators share a CRD."""
    return f"{operator}.{_GROUP}"


def widget_crd(operator: str) -> dict[str, Any]:
    """Return the CRD of an operator."""
    spec = {"type": "object", "properties": {"size": {"type": "integer"}, "color": {"type": "string"}}}
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
    }
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group_of(operator)}"},
        "spec": {"group": group_of(operator), "scope": "Namespaced", "names": names, "versions": [version]},
    }


def widget(operator: str, number: int) -> dict[str, Any]:
    """Return a resource of an operator."""
    return {
        "apiVersion": f"{group_of(operator)}/v1",
        "kind": "Widget",
        "metadata": {"name": f"widget-{number}", "namespace": operator},
        "spec": {"size": number, "color": "blue"},
    }


def release_objects(operator: str, version: str, webhook: WebhookAddress) -> list[dict[str, Any]]:
    """Return the objects of a version: a controller with its account and settings, and a webhook."""
    metadata = {"name": operator, "namespace": operator}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"logLevel": "info"}}
    return [account, settings, _controller(operator, version), _webhook(operator, webhook)]


def _controller(operator: str, version: str) -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": operator}
    container = {"name": "controller", "image": f"registry.example.com/{operator}:{version}"}
    template = {
        "metadata": {"labels": {**labels, "app.kubernetes.io/version": version}},
        "spec": {"serviceAccountName": operator, "containers": [container]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": operator, "namespace": operator, "labels": labels},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }


def _webhook(operator: str, address: WebhookAddress) -> dict[str, Any]:
    rule = {
        "apiGroups": [group_of(operator)],
        "apiVersions": ["v1"],
        "resources": ["widgets"],
        "operations": ["CREATE", "UPDATE"],
    }
    webhook = {
        "name": f"widgets.{group_of(operator)}",
        "clientConfig": {"url": address.url, "caBundle": address.ca_bundle},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": operator},
        "webhooks": [webhook],
    }


def operator_chart(operator: str, version: str, webhook: WebhookAddress) -> bytes:
    """Return the archive of a version."""
    templates = {
        f"templates/{each['kind'].lower()}.yaml": json.dumps(each)
        for each in release_objects(operator, version, webhook)
    }
    files = {"values.yaml": "{}\n", "crds/widgets.yaml": json.dumps(widget_crd(operator)), **templates}
    return pack_chart(operator, version, files, appVersion=version)


def release_secret(operator: str, version: str, webhook: WebhookAddress) -> dict[str, Any]:
    """Return the Secret in which Helm stores the first revision of a release."""
    manifest = "".join(
        f"---\n# Source: {operator}/templates/{each['kind'].lower()}.yaml\n{json.dumps(each)}\n"
        for each in release_objects(operator, version, webhook)
    )
    moment = "2027-01-04T12:00:00Z"
    info = {"status": "deployed", "first_deployed": moment, "last_deployed": moment}
    chart = {"apiVersion": "v2", "name": operator, "version": version, "appVersion": version}
    content = {
        "name": operator,
        "namespace": operator,
        "version": 1,
        "info": {**info, "description": "Install complete"},
        "chart": {"metadata": chart},
        "manifest": manifest,
        "apply_method": SERVER_SIDE,
    }
    packed = base64.b64encode(gzip.compress(json.dumps(content).encode(), mtime=0))
    labels = {"owner": "helm", "name": operator, "status": "deployed", "version": "1"}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": RELEASE_SECRET,
        "metadata": {
            "name": f"sh.helm.release.v1.{operator}.v1",
            "namespace": operator,
            "labels": labels,
        },
        "data": {"release": base64.b64encode(packed).decode()},
    }
