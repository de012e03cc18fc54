"""The Project of an Environment, the one its namespace was created for, and the namespace of its team."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kapsa.environments.names import OWNER, OWNER_UID, namespace_name
from kapsa.environments.resources import Environment, Project, TeamNamespace
from kapsa.environments.tenancy.namespaces import NAMESPACE
from kapsa.runtime import Context, Key

__all__ = [
    "PROJECT_MISSING",
    "is_namespace_of",
    "project_key",
    "project_missing",
    "team_namespace",
    "team_of",
]

PROJECT_MISSING = "ProjectMissing"
"""The reason for Environments that belong to no Project."""


def project_key(namespace: Mapping[str, Any] | None, environment: Environment) -> Key | None:
    """Return the key of the Project that owns the namespace, if the environment names the same one."""
    if namespace is None:
        return None
    team, _, name = (namespace["metadata"].get("annotations") or {}).get(OWNER, "").partition("/")
    return Key(team, name) if name and name == environment.spec.project_ref.name else None


def is_namespace_of(namespace: Mapping[str, Any], project: Project) -> bool:
    """Return whether the namespace was created for this Project, not for an earlier one of the same name."""
    return (namespace["metadata"].get("labels") or {}).get(OWNER_UID) == project.metadata.uid


def project_missing(environment: Environment) -> str:
    """Return the message for an environment that belongs to no Project."""
    name = environment.spec.project_ref.name
    return (
        f"namespace {environment.namespace} does not belong to a Project {name}: create the Project, and create the "
        f"Environment in the Project's namespace, such as {namespace_name('team', name)}"
    )


def team_of(ctx: Context[Any], project: Project) -> TeamNamespace:
    """Return the namespace of a project, and subscribe to changes of its labels."""
    return team_namespace(project, ctx.get(NAMESPACE, project.namespace, namespace="", track=True))


def team_namespace(project: Project, namespace: Mapping[str, Any] | None) -> TeamNamespace:
    """Return the namespace of a project; without labels if the namespace is not there."""
    labels = (namespace["metadata"].get("labels") or {}) if namespace is not None else {}
    return TeamNamespace(project.namespace, labels)
