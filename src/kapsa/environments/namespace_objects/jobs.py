"""Jobs in an environment's namespace: those that have not ended, and those that its CronJobs have started."""

from __future__ import annotations

from collections.abc import Iterable

from kapsa.environments.namespace_objects.children import JOB, controller_uid
from kapsa.environments.step_run import Manifest, StepRun

__all__ = ["is_unfinished", "unfinished_jobs"]


def is_unfinished(job: Manifest) -> bool:
    """Return whether a Job may still have pods, or create some."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    return not any(each["type"] in ("Complete", "Failed") and each["status"] == "True" for each in conditions)


async def unfinished_jobs(visit: StepRun, cron_jobs: Iterable[Manifest]) -> list[Manifest]:
    """Return the Jobs that these CronJobs have started and that have not ended. They are not watched."""
    started_by = {each["metadata"]["uid"] for each in cron_jobs}
    if not started_by:
        return []
    version, _, kind = JOB.rpartition("/")
    return [
        {**job, "apiVersion": version, "kind": kind}
        for job in (await visit.ctx.client.list(JOB, namespace=visit.namespace)).items
        if controller_uid(job) in started_by and is_unfinished(job)
    ]
