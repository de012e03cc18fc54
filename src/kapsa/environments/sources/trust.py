"""Trust: the rule that decides whether a commit may run and see the project's secrets.

A commit on a branch of the repository was pushed by a person with write access. A pull request can come from
a fork, that is, from anybody: its commit is trusted if the project trusts all, if a branch of the repository
is or was at that commit, or if exactly this commit was approved. The next push is a new commit, which is not
approved.

A repository lists only where its branches are now. So the status records the commits that a branch was at: the
next push to the branch does not take away the trust of what is deployed. A status without such a record comes from
an earlier version of the operator: what it deployed is trusted if it is in the history of a branch.
"""

from __future__ import annotations

from kapsa.environments.names import APPROVED_COMMIT
from kapsa.environments.resources import Environment, EnvironmentStatus, Project

__all__ = ["is_approved", "is_trusted", "is_undecided", "needs_refs", "record_trust"]


def needs_refs(environment: Environment, project: Project, commit: str) -> bool:
    """Return whether the branches of the repository decide."""
    return (
        environment.spec.source.pr_number is not None
        and project.spec.preview_environments.trust == "repository"
        and not is_approved(environment, commit)
        and not _is_recorded(environment, commit)
    )


def is_trusted(environment: Environment, project: Project, commit: str) -> bool:
    """Return whether this commit may run, as far as no listing of the repository is needed to decide."""
    if environment.spec.source.pr_number is None or is_approved(environment, commit):
        return True
    trust = project.spec.preview_environments.trust
    if trust == "repository":
        return _is_recorded(environment, commit)
    return trust == "all"


def is_undecided(environment: Environment, commit: str) -> bool:
    """Return whether an earlier version of the operator deployed the commit, and did not record why it trusted it."""
    status = environment.status
    return status.trusted_commits is None and commit == status.commit_sha


def record_trust(status: EnvironmentStatus, commit: str, *, in_branch: bool) -> None:
    """Record that the trust was decided, and the commit if a branch is or was at it.

    Of the earlier ones, only the deployed one is kept.
    """
    recorded = status.trusted_commits or []
    if in_branch:
        deployed = [each for each in recorded if each == status.commit_sha != commit]
        recorded = [*deployed, commit]
    status.trusted_commits = recorded


def is_approved(environment: Environment, commit: str) -> bool:
    """Return whether exactly this commit was approved."""
    return (environment.metadata.annotations or {}).get(APPROVED_COMMIT) == commit


def _is_recorded(environment: Environment, commit: str) -> bool:
    """Return whether the commit is recorded as one that a branch was at."""
    return commit in (environment.status.trusted_commits or ())
