"""Trust: the rule that decides whether a commit may run and see the project's secrets.

A commit on a branch of the repository was pushed by a person with write access. A pull request can come from
a fork, that is, from anybody: its commit is trusted if the project trusts all, if a branch of the repository
is or was at that commit, or if exactly this commit was approved. The next push is a new commit, which is not
approved.

A repository lists only where its branches are now. So the status records the commits that a branch was at: the
next push to the branch does not take away the trust of what is deployed.
"""

from __future__ import annotations

from kapsa.adapters.git.client import Refs
from kapsa.environments.names import APPROVED_COMMIT
from kapsa.environments.resources import Environment, EnvironmentStatus, Project

__all__ = ["is_approved", "is_trusted", "needs_refs", "record_trust"]


def needs_refs(environment: Environment, project: Project, commit: str) -> bool:
    """Return whether the branches of the repository decide."""
    return (
        environment.spec.source.pr_number is not None
        and project.spec.preview_environments.trust == "repository"
        and not is_approved(environment, commit)
        and commit not in environment.status.trusted_commits
    )


def is_trusted(environment: Environment, project: Project, commit: str, refs: Refs | None = None) -> bool:
    """Return whether this commit may run. `refs` are the repository's branches, if they decide."""
    if environment.spec.source.pr_number is None or is_approved(environment, commit):
        return True
    trust = project.spec.preview_environments.trust
    if trust == "repository":
        return commit in environment.status.trusted_commits or (
            refs is not None and commit in refs.branches.values()
        )
    return trust == "all"


def record_trust(status: EnvironmentStatus, commit: str, refs: Refs | None) -> None:
    """Record a commit that a branch is at; of the earlier ones, only the deployed one is kept."""
    if refs is not None and commit in refs.branches.values():
        deployed = [each for each in status.trusted_commits if each == status.commit_sha != commit]
        status.trusted_commits = [*deployed, commit]


def is_approved(environment: Environment, commit: str) -> bool:
    """Return whether exactly this commit was approved."""
    return (environment.metadata.annotations or {}).get(APPROVED_COMMIT) == commit
