"""The approval step: nothing of an untrusted commit is built, rendered or run before a person approves it.

A version that was approved earlier keeps serving while its successor waits. If what is applied comes from a
commit that is neither trusted nor approved any longer, its workloads are deleted, even if they were never
complete; volumes, Services and the host stay.
"""

from __future__ import annotations

from typing import ClassVar

from kapsa.environments.names import APPROVED_COMMIT
from kapsa.environments.namespace_objects.apply_set import applied_commit, members
from kapsa.environments.namespace_objects.builds import EnvironmentBuilds
from kapsa.environments.namespace_objects.children import kind_string
from kapsa.environments.resources.environment import Phase
from kapsa.environments.sources.trust import is_trusted
from kapsa.environments.step_run import StepRun
from kapsa.environments.steps.step import Done, Outcome, Waiting

__all__ = ["ApprovalStep"]

_REASON = "ApprovalRequired"
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
            return Done("the commit is trusted")
        await self._owned.delete_all(visit.environment, visit.ctx)
        applied = applied_commit(visit)
        if applied is None or not is_trusted(visit.environment, visit.project, applied):
            await _stop(visit)
        return Waiting(message=_request(visit), reason=_REASON)


def _request(visit: StepRun) -> str:
    number, commit = visit.environment.spec.source.pr_number, visit.commit
    return (
        f"commit {commit} of pull request {number} is not trusted, so nothing of it runs: read it, then set the "
        f"annotation {APPROVED_COMMIT} of the Environment to that commit"
    )


async def _stop(visit: StepRun) -> None:
    """Delete the workloads of what is applied, which is not trusted."""
    present = members(visit)
    if not present:
        return
    for each in present:
        if each["kind"] in _WORKLOADS and not each["metadata"].get("deletionTimestamp"):
            await visit.ctx.delete(kind_string(each), each["metadata"]["name"], namespace=visit.namespace)
    status = visit.ctx.status
    status.url, status.urls, status.rollout = None, [], None
    visit.ctx.condition(
        "DeploymentReady", False, reason=_REASON, message="the approval of the deployed commit was withdrawn"
    )
