"""The apply step: what was rendered is in the namespace, what is no longer rendered is gone, and all of it is healthy."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import timedelta
from typing import ClassVar

import msgspec

from kapsa.adapters.manifests.health import ObjectHealth, object_health
from kapsa.environments.objects.apply_set import members, membership, parent
from kapsa.environments.objects.children import RENDERED_KINDS, kind_string, marked, shown
from kapsa.environments.objects.copies import copied_secrets
from kapsa.environments.objects.pods import trouble_of
from kapsa.environments.resources import Rollout
from kapsa.environments.resources.environment import Phase
from kapsa.environments.steps.step import Done, Outcome, StepFailure, Waiting, is_refusal
from kapsa.environments.visit import Manifest, Visit
from kapsa.runtime import ApiError, Invalid

__all__ = ["ASLEEP", "ApplyStep"]

ASLEEP = "it sleeps: set suspended to false to wake it"
_ORDER = {kind: number for number, kind in enumerate(RENDERED_KINDS)}
_OVER_QUOTA = "exceeded quota"
_QUOTA_HINT = (
    "Ask for less, or raise resources.defaultQuota of the project: an update needs room for the old and the new "
    "version at once."
)
_encode = msgspec.json.Encoder(order="deterministic").encode


class ApplyStep:
    """Needs the rendered objects. Writes them and the parent of their ApplySet, and deletes what is no longer rendered."""

    name: ClassVar[str] = "apply"
    condition: ClassVar[str] = "DeploymentReady"
    phase: ClassVar[Phase] = "Deploying"

    async def run(self, visit: Visit) -> Outcome:
        desired = [marked(visit, each, membership(visit)) for each in sorted(visit.objects, key=_rank)]
        present = members(visit)
        _note_rollout(visit)
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
        return await self._judge(visit, applied)

    async def _replace_job(self, visit: Visit, job: Manifest) -> Outcome:
        """A Job cannot be changed: the old one goes, and its end brings the run that makes the new one."""
        await visit.ctx.delete(kind_string(job), job["metadata"]["name"], namespace=visit.place)
        return Waiting(message=f"{shown(job)} is made anew", reason="ReplacingJob", after=5.0)

    async def _prune(self, visit: Visit, desired: Sequence[Manifest], present: Sequence[Manifest]) -> None:
        """Delete the members of the ApplySet that are no longer rendered."""
        kept = {_place(each) for each in desired}
        for each in present:
            kind, name = _place(each)
            if (kind, name) not in kept and not each["metadata"].get("deletionTimestamp"):
                await visit.ctx.delete(kind, name, namespace=visit.place)
                visit.ctx.event("Normal", "Pruned", f"{shown(each)} is no longer rendered")

    async def _judge(self, visit: Visit, applied: Sequence[Manifest]) -> Outcome:
        judged = [(each, object_health(each)) for each in applied]
        for each, found in judged:
            if found.state == "Failed":
                return await _unhealthy(visit, each, found)
        waiting = [(each, found) for each, found in judged if found.state != "Current"]
        if visit.environment.spec.suspended:
            if waiting:
                return Waiting(message=_words(waiting), reason="FallingAsleep")
            return Waiting(message=ASLEEP, reason="Suspended")
        if not waiting:
            told = "; ".join([f"{len(applied)} objects are healthy", *visit.warnings])
            return Done(told, reason="Healthy")
        left = _time_left(visit)
        if left <= 0:
            each, found = waiting[0]
            return await _unhealthy(visit, each, ObjectHealth("Failed", found.message, "RolloutTimedOut"))
        return Waiting(message=_words(waiting), reason="RollingOut", after=left)


def _place(manifest: Manifest) -> tuple[str, str]:
    return kind_string(manifest), manifest["metadata"]["name"]


def _rank(manifest: Manifest) -> tuple[int, str]:
    return _ORDER[kind_string(manifest)], manifest["metadata"]["name"]


def _words(waiting: Sequence[tuple[Manifest, ObjectHealth]]) -> str:
    return "; ".join(f"{shown(each)}: {found.message}" for each, found in waiting[:3])


def _note_rollout(visit: Visit) -> None:
    """Another set of objects is another rollout, whose deadline begins now."""
    digest = hashlib.sha256(_encode(list(visit.objects))).hexdigest()[:16]
    known = visit.ctx.status.rollout
    if known is None or known.digest != digest:
        visit.ctx.status.rollout = Rollout(digest=digest, started_at=visit.ctx.now().replace(microsecond=0))


def _time_left(visit: Visit) -> float:
    rollout = visit.ctx.status.rollout
    assert rollout is not None  # noted before anything was applied
    deadline = rollout.started_at + timedelta(seconds=visit.settings.rollout_timeout)
    return (deadline - visit.ctx.now()).total_seconds()


async def _unhealthy(visit: Visit, found: Manifest, why: ObjectHealth) -> StepFailure:
    trouble = await trouble_of(visit.ctx.client, found, secrets=await copied_secrets(visit))
    message = f"{shown(found)}: {why.message or why.reason}"
    quota = _OVER_QUOTA in why.message
    return StepFailure(
        reason="QuotaExceeded" if quota else why.reason or "Unhealthy",
        message=f"{message} ({trouble.message})" if trouble.message else message,
        object=shown(found),
        log_tail=trouble.log_tail,
        hint=_QUOTA_HINT if quota else trouble.hint,
        after=None if visit.environment.spec.suspended else 300.0,
    )


def _rejected(manifest: Manifest, error: ApiError) -> StepFailure:
    text = error.message
    quota = _OVER_QUOTA in text
    return StepFailure(
        reason="QuotaExceeded" if quota else "Rejected",
        message=f"{shown(manifest)} was not accepted: {text}",
        object=shown(manifest),
        hint=_QUOTA_HINT
        if quota
        else "Change it in the repository, or what the project and the environment put into it.",
    )
