"""The sleep step: no pod of a suspended environment runs, whatever keeps its next version from being rendered."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import ClassVar

from kapsa.environments.namespace_objects.apply_set import members
from kapsa.environments.namespace_objects.children import kind_string, shown
from kapsa.environments.namespace_objects.jobs import unfinished_jobs
from kapsa.environments.namespace_objects.removal import LOOK_AGAIN_SECONDS, delete_with_pods, going
from kapsa.environments.resources.environment import Phase
from kapsa.environments.step_run import Manifest, StepRun
from kapsa.environments.steps.step import Done, Outcome, Waiting, is_refusal
from kapsa.runtime import ApiError

__all__ = ["SleepStep", "suspend"]

_WITH_PODS = frozenset({"Deployment", "StatefulSet", "CronJob", "Job", "DaemonSet"})
SUSPENDED_NODES = "catalyst.dev/suspended"


class SleepStep:
    """The step that scales down what is applied while the environment is suspended. Needs the namespace.

    Deletes the Jobs that CronJobs have started, which come again on schedule after it wakes.
    """

    name: ClassVar[str] = "sleep"
    condition: ClassVar[str] = "DeploymentReady"
    phase: ClassVar[Phase] = "Pending"

    async def run(self, visit: StepRun) -> Outcome:
        if not visit.environment.spec.suspended:
            return Done("the environment is awake")
        # One that is being deleted is gone soon: to apply it could create it again.
        present = [
            each
            for each in members(visit)
            if each["kind"] in _WITH_PODS and not each["metadata"].get("deletionTimestamp")
        ]
        refusals = [error for each in present if (error := await _scale_down(visit, each)) is not None]
        jobs = await _end_jobs(visit, [each for each in present if each["kind"] == "CronJob"])
        if refusals:
            raise refusals[0]
        if jobs:
            return Waiting(message=going(jobs), reason="FallingAsleep", after=LOOK_AGAIN_SECONDS)
        return Done("nothing that is applied has pods")


async def _end_jobs(visit: StepRun, cron_jobs: Sequence[Manifest]) -> list[Manifest]:
    """Delete the Jobs that the CronJobs have started and that have not ended. Returns those that still exist.

    A CronJob that is suspended lets them run on. Each is kept until its pods are gone.
    """
    jobs = await unfinished_jobs(visit, cron_jobs)
    for job in jobs:
        if await delete_with_pods(visit, job):
            visit.ctx.event(
                "Normal", "JobDeleted", f"deleted {shown(job)}, since the environment is suspended"
            )
    return jobs


async def _scale_down(visit: StepRun, member: Manifest) -> ApiError | None:
    """Scale down an object. Returns the refusal of the API server, which must not keep others awake."""
    applied = visit.ctx.applied(kind_string(member), member["metadata"]["name"], namespace=visit.namespace)
    if applied is None or (asleep := suspend(applied)) == applied:
        return None
    try:
        await visit.ctx.apply(asleep, owner=False)
    except ApiError as error:
        if not is_refusal(error):
            raise
        return error
    return None


def suspend(manifest: Manifest) -> Manifest:
    """Return the object scaled down so that no pod of it runs; everything else stays."""
    match manifest["kind"]:
        case "Deployment" | "StatefulSet":
            return {**manifest, "spec": {**manifest.get("spec", {}), "replicas": 0}}
        case "CronJob" | "Job":
            return {**manifest, "spec": {**manifest.get("spec", {}), "suspend": True}}
        case "DaemonSet":
            spec = copy.deepcopy(manifest["spec"])
            pod = spec["template"].setdefault("spec", {})
            chosen = pod.get("nodeSelector")
            pod["nodeSelector"] = {**(chosen if isinstance(chosen, dict) else {}), SUSPENDED_NODES: "true"}
            return {**manifest, "spec": spec}
    return manifest
