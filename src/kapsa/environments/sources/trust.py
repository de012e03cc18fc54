"""Trust: the rule that decides whether a commit may run and see the project's secrets.

A commit on a branch of the repository was pushed by a person with write access. A pull request can come from
a fork, that is, from anybody: its commit is trusted if the project trusts all, if a branch of the repository
is at that commit, or if exactly this commit was approved. The next push is a new commit, which is not
approved.
"""

from __future__ import annotations

from kapsa.adapters.git.client import Refs
from kapsa.environments.names import APPROVED_COMMIT
from kapsa.environments.resources import Environment, Project

__all__ = ["is_approved", "is_trusted", "needs_refs"]


def needs_refs(environment: Environment, project: Project, commit: str) -> bool:
    """Return whether the branches of the repository decide."""
    return (
        environment.spec.source.pr_number is not None
        and not is_approved(environment, commit)
        and project.spec.preview_environments.trust == "repository"
    )


def is_trusted(environment: Environment, project: Project, commit: str, refs: Refs | None) -> bool:
    """Return whether this commit may run. `refs` are the repository's branches, if they decide."""
    if environment.spec.source.pr_number is None or is_approved(environment, commit):
        return True
    trust = project.spec.preview_environments.trust
    if trust == "repository":
        return refs is not None and commit in refs.branches.values()
    return trust == "all"


def is_approved(environment: Environment, commit: str) -> bool:
    """Return whether exactly this commit was approved."""
    return (environment.metadata.annotations or {}).get(APPROVED_COMMIT) == commit
