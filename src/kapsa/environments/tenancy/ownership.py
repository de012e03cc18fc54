"""Which Project an Environment belongs to: the one that its namespace was made for, never a tenant's word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kapsa.environments.names import OWNER, OWNER_UID, namespace_name
from kapsa.environments.resources import Environment, Project
from kapsa.runtime import Key

__all__ = ["PROJECT_MISSING", "is_home_of", "project_key", "project_missing"]

PROJECT_MISSING = "ProjectMissing"
"""The reason of Environments that belong to no Project."""


def project_key(namespace: Mapping[str, Any] | None, environment: Environment) -> Key | None:
    """Where the Project is that the environment's namespace was made for, if it is the one that the environment names."""
    if namespace is None:
        return None
    team, _, name = (namespace["metadata"].get("annotations") or {}).get(OWNER, "").partition("/")
    return Key(team, name) if name and name == environment.spec.project_ref.name else None


def is_home_of(namespace: Mapping[str, Any], project: Project) -> bool:
    """Whether the namespace was made for this very Project, not for an earlier one of the same name."""
    return (namespace["metadata"].get("labels") or {}).get(OWNER_UID) == project.metadata.uid


def project_missing(environment: Environment) -> str:
    """What to say to whoever made an environment that belongs to no Project."""
    wanted = environment.spec.project_ref.name
    return (
        f"namespace {environment.namespace} is not that of a Project {wanted}: create the Project, and the "
        f"Environment in the namespace that it makes, such as {namespace_name('team', wanted)}"
    )
