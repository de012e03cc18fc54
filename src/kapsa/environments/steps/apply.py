"""The apply step: applies and prunes the rendered objects, and waits until all are healthy."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import timedelta
from typing import ClassVar

import msgspec

from kapsa.adapters.manifests.health import ObjectHealth, object_health
from kapsa.environments.namespace_objects.apply_set import members, membership, parent
from kapsa.environments.namespace_objects.children import RENDERED_KINDS, kind_string, marked, shown
from kapsa.environments.namespace_objects.copies import copied_secrets
from kapsa.environments.namespace_objects.pods import first_problem
from kapsa.environments.resources import Rollout
from kapsa.environments.resources.environment import Phase
from kapsa.environments.step_run import Manifest, StepRun
from kapsa.environments.steps.step import Done, Outcome, StepFailure, Waiting, is_refusal
from kapsa.runtime import ApiError, Invalid

__all__ = ["SUSPENDED", "ApplyStep"]

SUSPENDED = "the environment is suspended: set suspended to false to resume it"
_ORDER = {kind: number for number, kind in enumerate(RENDERED_KINDS)}
_OVER_QUOTA = "exceeded quota"
_QUOTA_HINT = (
    "Request less, or raise resources.defaultQuota of the Project, as far as the operator's settings allow. An update needs room for the old and the new "
    "version at the same time."
)
_TRANSIENT = ("ReplicaFailure", "ProgressDeadlineExceeded")
_encode = msgspec.json.Encoder(order="deterministic").encode


class ApplyStep:
    """The step that applies the rendered objects with their ApplySet, and prunes the rest.

    Needs the rendered objects. Writes them and the parent of their ApplySet, and deletes what is no longer
    rendered.
    """

    name: ClassVar[str] = "apply"
    condition: ClassVar[str] = "DeploymentReady"
    phase: ClassVar[Phase] = "Deploying"

    async def run(self, visit: StepRun) -> Outcome:
        desired = [marked(visit, each, membership(visit)) for each in sorted(visit.objects, key=_rank)]
        present = members(visit)
        _start_rollout(visit)
        # The first deployment counts from its first object: it can be suspended even if one of them is rejected.
        visit.ctx.status.commit_sha = visit.ctx.status.commit_sha or visit.commit
        await visit.ctx.apply(parent(visit, [*desired, *present]), owner=False)
        applied: list[Manifest] = []
        for each in desired:
            try:
                applied.append(await visit.ctx.apply(each, owner=False))
            except ApiError as error:
                if not is_refusal(error):
                    raise
                if isinstance(error, Invalid) and each["kind"] == "Job":
                    return await self._replace_job(visit, each)
                return _rejected(each, error)
        await self._prune(visit, desired, present)
        visit.ctx.status.commit_sha = visit.commit
        visit.ctx.status.image = visit.image
        return await self._assess(visit, applied)

    async def _replace_job(self, visit: StepRun, job: Manifest) -> Outcome:
        """Delete a Job that cannot be changed; its deletion triggers the run that creates the new one."""
        await visit.ctx.delete(kind_string(job), job["metadata"]["name"], namespace=visit.namespace)
        return Waiting(
            message=f"{shown(job)} is being replaced, since a Job cannot be changed",
            reason="ReplacingJob",
            after=5.0,
        )

    async def _prune(self, visit: StepRun, desired: Sequence[Manifest], present: Sequence[Manifest]) -> None:
        """Delete the members of the ApplySet that are no longer rendered."""
        kept = {_identity(each) for each in desired}
        for each in present:
            kind, name = _identity(each)
            if (kind, name) not in kept and not each["metadata"].get("deletionTimestamp"):
                await visit.ctx.delete(kind, name, namespace=visit.namespace)
                visit.ctx.event("Normal", "Pruned", f"deleted {shown(each)}, which is no longer rendered")

    async def _assess(self, visit: StepRun, applied: Sequence[Manifest]) -> Outcome:
        assessed = [(each, object_health(each)) for each in applied]
        completed = _is_completed(visit)
        for each, verdict in assessed:
            if verdict.state == "Failed" and not (completed and _recovers(verdict)):
                return await _unhealthy(visit, each, verdict)
        waiting = [(each, verdict) for each, verdict in assessed if verdict.state != "Current"]
        if visit.environment.spec.suspended:
            if waiting:
                return Waiting(message=_describe(waiting), reason="FallingAsleep")
            return Waiting(message=SUSPENDED, reason="Suspended")
        if not waiting:
            _complete_rollout(visit)
            message = "; ".join([f"{len(applied)} objects are healthy", *visit.warnings])
            return Done(message, reason="Healthy")
        if completed:
            return Waiting(message=_describe(waiting), reason="Degraded", phase="Degraded")
        left = _time_left(visit)
        if left <= 0:
            each, verdict = waiting[0]
            return await _unhealthy(visit, each, ObjectHealth("Failed", verdict.message, "RolloutTimedOut"))
        return Waiting(message=_describe(waiting), reason="RollingOut", after=left)


def _identity(manifest: Manifest) -> tuple[str, str]:
    return kind_string(manifest), manifest["metadata"]["name"]


def _rank(manifest: Manifest) -> tuple[int, str]:
    return _ORDER[kind_string(manifest)], manifest["metadata"]["name"]


def _describe(waiting: Sequence[tuple[Manifest, ObjectHealth]]) -> str:
    return "; ".join(f"{shown(each)}: {verdict.message}" for each, verdict in waiting[:3])


def _start_rollout(visit: StepRun) -> None:
    """Start a new rollout, with a new deadline, when the set of objects has changed."""
    digest = hashlib.sha256(_encode(list(visit.objects))).hexdigest()[:16]
    rollout = visit.ctx.status.rollout
    if rollout is None or rollout.digest != digest:
        visit.ctx.status.rollout = Rollout(digest=digest, started_at=visit.ctx.now().replace(microsecond=0))


def _complete_rollout(visit: StepRun) -> None:
    """Close the deadline of the rollout: a pod that is lost later does not fail it."""
    rollout = visit.ctx.status.rollout
    if rollout is not None and rollout.completed_at is None:
        completed = msgspec.structs.replace(rollout, completed_at=visit.ctx.now().replace(microsecond=0))
        visit.ctx.status.rollout = completed


def _is_completed(visit: StepRun) -> bool:
    rollout = visit.ctx.status.rollout
    return rollout is not None and rollout.completed_at is not None


def _recovers(verdict: ObjectHealth) -> bool:
    """Return whether a workload that was healthy before recovers without help: its controller replaces pods."""
    return verdict.reason in _TRANSIENT and _OVER_QUOTA not in verdict.message


def _time_left(visit: StepRun) -> float:
    rollout = visit.ctx.status.rollout
    assert rollout is not None  # set before anything was applied
    deadline = rollout.started_at + timedelta(seconds=visit.settings.rollout_timeout)
    return (deadline - visit.ctx.now()).total_seconds()


async def _unhealthy(visit: StepRun, manifest: Manifest, why: ObjectHealth) -> StepFailure:
    problem = await first_problem(visit.ctx.client, manifest, secrets=await copied_secrets(visit))
    message = f"{shown(manifest)}: {why.message or why.reason}"
    quota = _OVER_QUOTA in why.message
    return StepFailure(
        reason="QuotaExceeded" if quota else why.reason or "Unhealthy",
        message=f"{message} ({problem.message})" if problem.message else message,
        object=shown(manifest),
        log_tail=problem.log_tail,
        hint=_QUOTA_HINT if quota else problem.hint,
        after=None if visit.environment.spec.suspended else 300.0,
    )


def _rejected(manifest: Manifest, error: ApiError) -> StepFailure:
    text = error.message
    quota = _OVER_QUOTA in text
    return StepFailure(
        reason="QuotaExceeded" if quota else "Rejected",
        message=f"the API server rejected {shown(manifest)}: {text}",
        object=shown(manifest),
        hint=_QUOTA_HINT
        if quota
        else "Change it in the repository, or change the values that the Project and the Environment set in it.",
    )
