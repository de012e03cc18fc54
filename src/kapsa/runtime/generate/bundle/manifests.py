"""The plain manifests of an operator, for `kubectl apply` or GitOps without Helm."""

from __future__ import annotations

from typing import Any

from kapsa.runtime.generate.bundle.facts import BundleFacts
from kapsa.runtime.generate.bundle.workload import (
    InstallationSettings,
    access,
    definitions,
    deployment,
    disruption_budget,
    service_monitor,
    services,
)

__all__ = ["plain_manifests"]


def plain_manifests(
    facts: BundleFacts, settings: InstallationSettings, *, monitor: bool = False
) -> list[dict[str, Any]]:
    """Return all objects, in the order in which to create them. `monitor` adds a ServiceMonitor."""
    return [
        *definitions(facts, settings),
        _namespace(settings),
        *access(facts, settings),
        *services(facts, settings),
        deployment(facts, settings),
        *([disruption_budget(facts, settings)] if settings.replicas > 1 else []),
        *(service_monitor(facts, settings) if monitor else ()),
    ]


def _namespace(settings: InstallationSettings) -> dict[str, Any]:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": settings.namespace, "labels": labels},
    }
