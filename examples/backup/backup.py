"""Backups of a volume: a Job for each run, with retention, and the size of the last archive in the status.

The name of a Job follows from the generation of the spec and the time slot, so that a run is never started
twice, even after a crash.
"""

import re
from datetime import datetime
from typing import Annotated, Any, Literal

from kapsa.runtime import (
    Context,
    Controller,
    CustomResource,
    Field,
    Operator,
    Owns,
    Quantity,
    Requeue,
    Spec,
    Status,
    Watch,
    child_name,
    printer_column,
)

BACKUP_LABEL = "backup.example.com/name"


class BackupSpec(Spec):
    """The source, target and schedule of backups."""

    source_claim: Annotated[str, Field(min_length=1, max_length=253)]
    """The volume claim to back up."""
    target_claim: Annotated[str, Field(min_length=1, max_length=253)]
    """The volume claim for the archives."""
    interval_hours: Annotated[int, Field(ge=1, le=8760)] | None = None
    """Hours between two runs. If absent, each change of this spec starts one run."""
    retention: Annotated[int, Field(ge=1, le=1000)] = 7
    """The number of archives, and of finished Jobs, to keep."""
    image: Annotated[str, Field(min_length=1)] = "busybox:1.37"
    """An image with sh, tar and the common file tools."""


class BackupStatus(Status):
    """The state of the last run."""

    phase: Literal["Pending", "Running", "Complete", "Failed"] = "Pending"
    """The result of the last run."""
    last_job: str | None = None
    """The Job of the last run."""
    last_backup_time: datetime | None = None
    """The time of the last successful run."""
    size: Quantity | None = None
    """The size of its archive."""


class Backup(
    CustomResource[BackupSpec, BackupStatus],
    group="example.com",
    version="v1",
    short_names=["bkp"],
    columns=[
        printer_column("Phase", ".status.phase"),
        printer_column("Last", ".status.lastBackupTime", type="date"),
        printer_column("Size", ".status.size"),
    ],
):
    """A backup of a volume, once or regularly."""


class BackupController(Controller[Backup]):
    owns = (Owns("batch/v1/Job", deletes=True),)
    # A run reports the size of its archive in its pod's termination message, which may arrive after the Job's completion.
    watches = (
        Watch("v1/Pod", map=lambda pod: [(pod.namespace, pod.labels[BACKUP_LABEL])], labels=BACKUP_LABEL),
    )
    max_concurrent_reconciles = 5

    async def reconcile(self, backup: Backup, ctx: Context[Backup]) -> Requeue | None:
        name = job_name(backup, ctx.now())
        jobs = {job["metadata"]["name"]: job for job in ctx.children("batch/v1/Job")}
        job = jobs.get(name) or await ctx.apply(job_for(backup, name))
        outcome = outcome_of(job)
        ctx.status.last_job = name
        ctx.status.phase = outcome
        if outcome == "Running":
            ctx.condition("Complete", False, reason="JobRunning", message=f"{name} is running")
        elif outcome == "Failed":
            ctx.condition("Complete", False, reason="JobFailed", message=f"{name} failed; see its pods' logs")
        else:
            ctx.status.last_backup_time = finished_at(job)
            ctx.status.size = archive_size(ctx, name)
            ctx.condition("Complete", True, reason="JobComplete", message=f"{name} is complete")
            jobs.pop(name, None)
            await clean_up(backup, ctx, list(jobs.values()))
        return next_run(backup, ctx.now())


def job_name(backup: Backup, now: datetime) -> str:
    """Return the name of the Job for the current run."""
    slot = int(now.timestamp()) // interval_seconds(backup) if backup.spec.interval_hours else 0
    return child_name(backup, backup.metadata.generation, slot)


def next_run(backup: Backup, now: datetime) -> Requeue | None:
    """Return when to run again: at the start of the next slot."""
    if backup.spec.interval_hours is None:
        return None
    seconds = interval_seconds(backup)
    return Requeue(after=seconds - now.timestamp() % seconds)


def interval_seconds(backup: Backup) -> int:
    return (backup.spec.interval_hours or 0) * 3600


def outcome_of(job: dict[str, Any]) -> Literal["Running", "Complete", "Failed"]:
    """Return the result of a Job."""
    for condition in job.get("status", {}).get("conditions", ()):
        if condition["status"] == "True" and condition["type"] in ("Complete", "Failed"):
            return "Complete" if condition["type"] == "Complete" else "Failed"
    return "Running"


def finished_at(job: dict[str, Any]) -> datetime | None:
    text = job.get("status", {}).get("completionTime")
    return datetime.fromisoformat(text) if text else None


def archive_size(ctx: Context[Backup], job: str) -> Quantity | None:
    """Return the size that the run's pod reported, if the pod still exists."""
    for pod in ctx.list("v1/Pod", labels={"batch.kubernetes.io/job-name": job}):
        for container in pod.get("status", {}).get("containerStatuses", ()):
            message = container.get("state", {}).get("terminated", {}).get("message", "")
            if re.fullmatch(r"\d+", message.strip()):
                return Quantity(int(message))
    return None


async def clean_up(backup: Backup, ctx: Context[Backup], earlier: list[dict[str, Any]]) -> None:
    """Delete the oldest Jobs beyond the retention. The run itself removed their archives."""
    earlier.sort(
        key=lambda job: (job["metadata"]["creationTimestamp"], job["metadata"]["name"]), reverse=True
    )
    for job in earlier[backup.spec.retention - 1 :]:
        await ctx.delete(job)


def job_for(backup: Backup, name: str) -> dict[str, Any]:
    """Return the Job of one run: write an archive, report its size, remove old archives."""
    folder = f"/target/{backup.name}"
    archive = f"{folder}/{name}.tar.gz"
    script = (
        f"set -e; mkdir -p {folder}; tar -czf {archive}.part -C /source .; mv {archive}.part {archive}; "
        f"wc -c < {archive} > /dev/termination-log; "
        f"ls -1t {folder}/*.tar.gz | tail -n +{backup.spec.retention + 1} | xargs -r rm --"
    )
    container = {
        "name": "backup",
        "image": backup.spec.image,
        "command": ["sh", "-c", script],
        "volumeMounts": [
            {"name": "source", "mountPath": "/source", "readOnly": True},
            {"name": "target", "mountPath": "/target"},
        ],
    }
    pod = {
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [
            {"name": "source", "persistentVolumeClaim": {"claimName": backup.spec.source_claim}},
            {"name": "target", "persistentVolumeClaim": {"claimName": backup.spec.target_claim}},
        ],
    }
    labels = {"app.kubernetes.io/name": "backup", BACKUP_LABEL: backup.name}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {"backoffLimit": 3, "template": {"metadata": {"labels": labels}, "spec": pod}},
    }


operator = Operator(controllers=[BackupController()], leader_election="backup-operator")
