"""The Project of an Environment, the one its namespace was created for, and the namespace of its team.

The namespace names its Project, and the status of the Project names the namespace. Only if both agree do the
Environments in it belong to the Project: anybody who may label a namespace could name a Project.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kapsa.environments.names import OWNER, namespace_name
from kapsa.environments.resources import Environment, NamespaceStatus, Project, TeamNamespace
from kapsa.environments.tenancy.namespaces import NAMESPACE, ForeignNamespaceError, refuse_foreign
from kapsa.runtime import Change, Context, Key, StoredObject

__all__ = [
    "PROJECT_MISSING",
    "is_namespace_of",
    "namespace_recorded",
    "project_key",
    "project_missing",
    "team_namespace",
    "team_of",
]

PROJECT_MISSING = "ProjectMissing"
"""The reason for Environments that belong to no Project."""


def project_key(namespace: Mapping[str, Any] | None) -> Key | None:
    """Return the key of the Project that owns the namespace, by its annotation."""
    if namespace is None:
        return None
    team, _, name = (namespace["metadata"].get("annotations") or {}).get(OWNER, "").partition("/")
    return Key(team, name) if name else None


def is_namespace_of(namespace: Mapping[str, Any], project: Project) -> bool:
    """Return whether the namespace was created for this Project, by its labels and by the Project's status."""
    try:
        refuse_foreign(namespace, project.metadata.uid, project.status.namespace)
    except ForeignNamespaceError:
        return False
    return True


def namespace_recorded(change: Change) -> bool:
    """Return whether the status of a Project names another namespace than before. For a Watch."""
    return _recorded(change.old) != _recorded(change.new)


def _recorded(stored: StoredObject | None) -> NamespaceStatus | None:
    return Project.decode(stored.raw).status.namespace if stored is not None else None


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
