"""The approval step: nothing of an untrusted commit is built, rendered or run before a person approves it.

A version that was approved earlier keeps serving while its successor waits. If what is applied comes from a
commit that is neither trusted nor approved any longer, its workloads are deleted, even if they were never
complete, and the step looks again until their last pod has ended; volumes, Services and the host stay.
"""

from __future__ import annotations

from typing import ClassVar

from kapsa.environments.names import APPROVED_COMMIT
from kapsa.environments.namespace_objects.apply_set import applied_commit, members
from kapsa.environments.namespace_objects.builds import EnvironmentBuilds
from kapsa.environments.namespace_objects.removal import LOOK_AGAIN_SECONDS, delete_with_pods, going
from kapsa.environments.resources.environment import Phase
from kapsa.environments.sources.trust import is_approved, is_trusted, is_undecided
from kapsa.environments.step_run import StepRun
from kapsa.environments.steps.step import Done, Outcome, Waiting

__all__ = ["ApprovalStep"]

_REASON = "ApprovalRequired"
_WITHDRAWN = "the approval of the deployed commit was withdrawn"
_WORKLOADS = frozenset({"Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob"})


class ApprovalStep:
    """The step that deletes the builds and workloads of a commit without trust. Needs the trust."""

    name: ClassVar[str] = "approval"
    condition: ClassVar[str] = "BuildReady"
    phase: ClassVar[Phase] = "Pending"

    def __init__(self, owned: EnvironmentBuilds) -> None:
        self._owned = owned

    async def run(self, visit: StepRun) -> Outcome:
        if visit.trusted:
            after = await _stop(visit) if _is_withdrawn(visit) else None
            if after is not None:
                return Waiting(message=_WITHDRAWN, reason="Stopping", after=after)
            return Done("the commit is trusted")
        await self._owned.delete_all(visit.environment, visit.ctx)
        after = await _stop(visit) if _has_lost_trust(visit) else None
        return Waiting(message=_request(visit), reason=_REASON, after=after)


def _has_lost_trust(visit: StepRun) -> bool:
    """Return whether something is applied, and the commit it comes from is not trusted."""
    applied = applied_commit(visit)
    if applied is None:
        return bool(members(visit))
    return not is_trusted(visit.environment, visit.project, applied)


def _is_withdrawn(visit: StepRun) -> bool:
    """Return whether the deployed commit is not trusted any longer, although the requested one is.

    One whose approval was replaced by that of the requested commit keeps serving until this is deployed.
    """
    environment, deployed = visit.environment, visit.environment.status.commit_sha
    return (
        deployed is not None
        and deployed != visit.commit
        and deployed == applied_commit(visit)
        and not is_approved(environment, visit.commit)
        and not is_undecided(environment, deployed)
        and not is_trusted(environment, visit.project, deployed)
    )


def _request(visit: StepRun) -> str:
    number, commit = visit.environment.spec.source.pr_number, visit.commit
    return (
        f"commit {commit} of pull request {number} is not trusted, so nothing of it runs: read it, then set the "
        f"annotation {APPROVED_COMMIT} of the Environment to that commit"
    )


async def _stop(visit: StepRun) -> float | None:
    """Delete the workloads of what is applied, which is not trusted.

    Returns the seconds until the next look while one of their pods may run; None once all have ended.
    """
    status = visit.ctx.status
    status.url, status.urls, status.rollout = None, [], None
    left = [each for each in members(visit) if each["kind"] in _WORKLOADS]
    for each in left:
        await delete_with_pods(visit, each)
    if left:
        visit.ctx.condition("DeploymentReady", False, reason="Stopping", message=going(left))
        return LOOK_AGAIN_SECONDS
    visit.ctx.condition("DeploymentReady", False, reason=_REASON, message=_WITHDRAWN)
    return None
