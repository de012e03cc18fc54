"""The values of the chart: their defaults with comments, and the schema that Helm checks them against."""

from __future__ import annotations

from typing import Any

from kapsa.runtime.generate.bundle.facts import BundleFacts, OperatorImage
from kapsa.runtime.generate.bundle.workload import RESOURCES
from kapsa.runtime.generate.manifest import to_yaml

__all__ = ["values_schema", "values_text"]

_OBJECT = {"type": "object"}
_STRINGS = {"type": "object", "additionalProperties": {"type": "string"}}
_OBJECTS = {"type": "array", "items": _OBJECT}


def values_text(
    facts: BundleFacts, image: OperatorImage, *, replicas: int, certificate_secret: str = ""
) -> str:
    """Return values.yaml."""
    return "\n".join(
        "".join(f"# {line}\n" for line in comment.splitlines()) + to_yaml([{name: default}])
        for name, comment, default in _defaults(facts, image, replicas, certificate_secret)
    )


def _defaults(
    facts: BundleFacts, image: OperatorImage, replicas: int, certificate_secret: str
) -> list[tuple[str, str, Any]]:
    """Return name, comment and default of each value."""
    alone = "One replica only: the operator elects no leader, and two would reconcile the same resources."
    several = "One replica leads. The others keep their caches warm and can take over."
    if facts.rights.sharded:
        several = "All replicas work, each on its part of the resources."
    return [
        (
            "image",
            "The image, whose entry point runs the operator. A digest goes before the tag.",
            {
                "repository": image.repository,
                "tag": image.tag,
                "digest": image.digest,
                "pullPolicy": "IfNotPresent",
            },
        ),
        ("imagePullSecrets", "Secrets to pull the image with, such as {name: registry}.", []),
        ("replicas", several if facts.elects else alone, replicas),
        ("args", "Arguments of the entry point, such as --log-level=debug.", []),
        ("env", "Environment variables, as in a container.", []),
        ("resources", "Without a CPU limit: a throttled operator cannot renew its lease in time.", RESOURCES),
        ("nodeSelector", "Nodes to run on.", {}),
        ("tolerations", "Taints of nodes to tolerate.", []),
        ("affinity", "Affinities of the pods.", {}),
        ("priorityClassName", "The PriorityClass of the pods.", ""),
        ("podAnnotations", "Annotations of the pods.", {}),
        ("serviceAccount", "Annotations of the service account, such as a role of the cloud.", {"annotations": {}}),
        (
            "crds",
            ("Install the CRDs with the release. Without keep they are deleted, with every resource of their kinds, by\n"
            "an uninstall, an upgrade to a chart without them, or with install: false."),
            {"install": True, "keep": True},
        ),
        *_metrics_defaults(facts),
        *_webhook_defaults(facts, certificate_secret),
    ]  # fmt: skip


def _metrics_defaults(facts: BundleFacts) -> list[tuple[str, str, Any]]:
    if facts.metrics is None:
        return []
    comment = "A ServiceMonitor for the Prometheus operator. auto: if the cluster has that kind."
    return [("serviceMonitor", comment, {"enabled": "auto", "interval": "30s", "labels": {}})]


def _webhook_defaults(facts: BundleFacts, certificate_secret: str) -> list[tuple[str, str, Any]]:
    if facts.webhooks is None or not facts.webhooks.certificate_directory:
        return []
    comment = "The Secret with tls.crt, tls.key and ca.crt of the webhooks, such as one of cert-manager."
    return [("webhooks", comment, {"certificateSecret": certificate_secret})]


def values_schema(facts: BundleFacts) -> dict[str, Any]:
    """Return values.schema.json: an unknown value is an error, not a setting without effect."""
    properties: dict[str, Any] = {
        "global": _OBJECT,
        "image": _closed(
            repository={"type": "string", "minLength": 1},
            tag={"type": "string"},
            digest={"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
            pullPolicy={"enum": ["Always", "IfNotPresent", "Never"]},
        ),
        "imagePullSecrets": _OBJECTS,
        "replicas": {"type": "integer", "minimum": 0, "maximum": 10 if facts.elects else 1},
        "args": {"type": "array", "items": {"type": "string"}},
        "env": _OBJECTS,
        "resources": _OBJECT,
        "nodeSelector": _STRINGS,
        "tolerations": _OBJECTS,
        "affinity": _OBJECT,
        "priorityClassName": {"type": "string"},
        "podAnnotations": _STRINGS,
        "serviceAccount": _closed(annotations=_STRINGS),
        "crds": _closed(install={"type": "boolean"}, keep={"type": "boolean"}),
    }
    if facts.metrics is not None:
        properties["serviceMonitor"] = _closed(
            enabled={"enum": [True, False, "auto"]},
            interval={"type": "string", "pattern": "^([0-9]+(ms|[smhd]))+$"},
            labels=_STRINGS,
        )
    if facts.webhooks is not None and facts.webhooks.certificate_directory:
        properties["webhooks"] = _closed(certificateSecret={"type": "string", "minLength": 1})
    return {"$schema": "http://json-schema.org/draft-07/schema#", **_closed(**properties)}


def _closed(**properties: Any) -> dict[str, Any]:
    """Return the schema of an object that has no other fields."""
    return {"type": "object", "additionalProperties": False, "properties": properties}
