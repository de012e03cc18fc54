"""ClusterRoles for people and programs that use environments. None of them can do what only the operator may.

No role may write a status: the status of a resource decides which namespace is deleted with it. No role may change
the objects in the namespace of an environment either, nor read its Secrets: its walls and the credentials to pull
images are there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kapsa.environments.names import MANAGED_BY
from kapsa.environments.resources import Environment, PreviewEnvironment, Project
from kapsa.runtime import PolicyRule, rule_for

__all__ = [
    "BOUND_ROLES",
    "CONFIGURATION_EDIT",
    "ENVIRONMENTS_EDIT",
    "ENVIRONMENTS_VIEW",
    "PODS_EDIT",
    "PODS_VIEW",
    "WEB_APPLICATION",
    "people_roles",
]

ENVIRONMENTS_VIEW = "kapsa-environments-view"
"""In the namespace of a project: read its Environments and their events."""
ENVIRONMENTS_EDIT = "kapsa-environments-edit"
"""In the namespace of a project: read and write its Environments."""
CONFIGURATION_EDIT = "kapsa-configuration-edit"
"""In the namespace of a project: read and write the Secrets and ConfigMaps that its Environments refer to."""
PODS_VIEW = "kapsa-pods-view"
"""In the namespace of an environment: read its objects and logs, without Secrets."""
PODS_EDIT = "kapsa-pods-edit"
"""In the namespace of an environment: also run commands in pods, forward their ports, and delete them."""
WEB_APPLICATION = "kapsa-web-application"
"""For a web application, in the namespace of a project: create and read Environments, and nothing else."""

BOUND_ROLES = (ENVIRONMENTS_VIEW, ENVIRONMENTS_EDIT, CONFIGURATION_EDIT, PODS_VIEW, PODS_EDIT)
"""The roles that the operator binds in the namespaces that it creates."""

_READ = ("get", "list", "watch")
_WRITE = ("create", "update", "patch", "delete")
_AGGREGATE = "rbac.authorization.k8s.io/aggregate-to-"
_TEAM_KINDS = (Project, Environment, PreviewEnvironment)
_EVENTS = (
    PolicyRule(resources=("events",), verbs=_READ),
    PolicyRule(group="events.k8s.io", resources=("events",), verbs=_READ),
)
_ENVIRONMENTS_READ = (rule_for(Environment, *_READ), *_EVENTS)
_OBJECTS_READ = (
    *_EVENTS,
    PolicyRule(
        resources=(
            "configmaps",
            "limitranges",
            "persistentvolumeclaims",
            "pods",
            "pods/log",
            "pods/status",
            "resourcequotas",
            "serviceaccounts",
            "services",
        ),
        verbs=_READ,
    ),
    PolicyRule(
        group="apps",
        resources=("controllerrevisions", "daemonsets", "deployments", "replicasets", "statefulsets"),
        verbs=_READ,
    ),
    PolicyRule(group="autoscaling", resources=("horizontalpodautoscalers",), verbs=_READ),
    PolicyRule(group="batch", resources=("cronjobs", "jobs"), verbs=_READ),
    PolicyRule(group="networking.k8s.io", resources=("ingresses", "networkpolicies"), verbs=_READ),
    PolicyRule(group="policy", resources=("poddisruptionbudgets",), verbs=_READ),
)
_PODS_USE = (
    PolicyRule(resources=("pods/attach", "pods/exec", "pods/portforward"), verbs=("get", "create")),
    PolicyRule(resources=("pods",), verbs=("delete",)),
    PolicyRule(resources=("pods/eviction",), verbs=("create",)),
)


def people_roles() -> list[dict[str, Any]]:
    """Return all roles, in the order in which to create them."""
    return [
        _team_role("view", _READ),
        _team_role("edit", (*_READ, *_WRITE)),
        _team_role("admin", (*_READ, *_WRITE, "deletecollection")),
        _role(ENVIRONMENTS_VIEW, _ENVIRONMENTS_READ),
        _role(ENVIRONMENTS_EDIT, (*_ENVIRONMENTS_READ, rule_for(Environment, *_WRITE))),
        _role(
            CONFIGURATION_EDIT,
            (PolicyRule(resources=("configmaps", "secrets"), verbs=(*_READ, *_WRITE)),),
        ),
        _role(PODS_VIEW, _OBJECTS_READ),
        _role(PODS_EDIT, (*_OBJECTS_READ, *_PODS_USE)),
        _role(WEB_APPLICATION, (rule_for(Environment, *_READ, "create"),)),
    ]


def _team_role(level: str, verbs: tuple[str, ...]) -> dict[str, Any]:
    """Return the role that Kubernetes adds to its own role of this level."""
    return _role(
        f"kapsa-{level}",
        tuple(rule_for(kind, *verbs) for kind in _TEAM_KINDS),
        {f"{_AGGREGATE}{level}": "true"},
    )


def _role(
    name: str, rules: tuple[PolicyRule, ...], labels: Mapping[str, str] | None = None
) -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {
            "name": name,
            "labels": {"app.kubernetes.io/part-of": "kapsa", MANAGED_BY: "kapsa", **(labels or {})},
        },
        "rules": [rule.to_dict() for rule in rules],
    }
