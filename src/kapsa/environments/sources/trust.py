"""Trust: whether a commit may see the project's secrets.

What is on a branch of the repository was pushed by somebody who may push there. A pull request can come from a fork, that is
from anybody: its commit is trusted if the project says so, if a branch of the repository is at that very commit, or if
somebody approved exactly this commit. Another push is another commit, which nobody has approved.
"""

from __future__ import annotations

from kapsa.adapters.git.client import Refs
from kapsa.environments.names import APPROVED_COMMIT
from kapsa.environments.resources import Environment, Project

__all__ = ["is_approved", "is_trusted", "needs_refs"]


def needs_refs(environment: Environment, project: Project, commit: str) -> bool:
    """Whether the branches of the repository decide."""
    return (
        environment.spec.source.pr_number is not None
        and not is_approved(environment, commit)
        and project.spec.preview_environments.trust == "repository"
    )


def is_trusted(environment: Environment, project: Project, commit: str, refs: Refs | None) -> bool:
    """Whether this commit may see secrets. `refs` is what the repository shows, where that decides."""
    if environment.spec.source.pr_number is None or is_approved(environment, commit):
        return True
    trust = project.spec.preview_environments.trust
    if trust == "repository":
        return refs is not None and commit in refs.branches.values()
    return trust == "all"


def is_approved(environment: Environment, commit: str) -> bool:
    """Whether somebody has approved exactly this commit."""
    return (environment.metadata.annotations or {}).get(APPROVED_COMMIT) == commit
