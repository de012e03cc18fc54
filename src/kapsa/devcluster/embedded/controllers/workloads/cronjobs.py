"""The plan of a CronJob: a Job at each scheduled time."""

from __future__ import annotations

import copy
from datetime import datetime, timedelta
from typing import Any

from kapsa.devcluster.embedded.controllers.machinery.conditions import is_true
from kapsa.devcluster.embedded.controllers.machinery.kinds import CRON_JOB, JOB, Object
from kapsa.devcluster.embedded.controllers.machinery.ownership import controller_reference, is_deleting
from kapsa.devcluster.embedded.controllers.machinery.plan import (
    Create,
    Delete,
    Note,
    RecordEvent,
    UpdateStatus,
    WritePlan,
)
from kapsa.devcluster.embedded.controllers.machinery.timestamps import parse, render
from kapsa.devcluster.embedded.controllers.workloads.jobs import is_finished
from kapsa.devcluster.embedded.strategies.workloads import schedule

SCHEDULED_AT = "batch.kubernetes.io/cronjob-scheduled-timestamp"
_MANY_MISSED = 100
_NEVER = "time difference between two schedules is less than 1 second"
"""The words of kube-controller-manager for a schedule with no time, such as February 31."""


def plan(cron_job: Object, jobs: list[Object], now: datetime) -> WritePlan:
    """Plan the next step of a CronJob."""
    return _Sync(cron_job, jobs, now).run()


def is_complete(job: Object) -> bool:
    """Return whether the Job succeeded."""
    return is_true((job.get("status") or {}).get("conditions"), "Complete")


class _Sync:
    def __init__(self, cron_job: Object, jobs: list[Object], now: datetime) -> None:
        self.cron_job, self.jobs, self.now = cron_job, jobs, now
        self.spec: dict[str, Any] = cron_job["spec"]
        self.before: dict[str, Any] = cron_job.get("status") or {}
        self.status: dict[str, Any] = copy.deepcopy(self.before)
        self.plan = WritePlan()

    def run(self) -> WritePlan:
        self._follow_jobs()
        self._trim_history()
        if not is_deleting(self.cron_job):
            self._fire()
        if not self.status.get("active"):
            self.status.pop("active", None)
        if self.status != self.before:
            self.plan.do(UpdateStatus(CRON_JOB, {**self.cron_job, "status": self.status}))
        return self.plan

    def _follow_jobs(self) -> None:
        listed = {reference["uid"] for reference in self.status.get("active") or ()}
        by_uid = {job["metadata"]["uid"]: job for job in self.jobs}
        for uid, job in by_uid.items():
            name = job["metadata"]["name"]
            if not is_finished(job):
                if uid in listed:
                    continue
                if SCHEDULED_AT in (job["metadata"].get("annotations") or {}):
                    listed.add(uid)
                    self.status["active"] = [*(self.status.get("active") or ()), reference_to(job)]
                else:
                    self._record(
                        "UnexpectedJob", f"Saw a job that the controller did not create or forgot: {name}"
                    )
                continue
            if uid in listed:
                outcome = "Complete" if is_complete(job) else "Failed"
                self._record(
                    "SawCompletedJob", f"Saw completed job: {name}, condition: {outcome}", type_="Normal"
                )
                listed.discard(uid)
            self._record_success(job)
        for reference in self.status.get("active") or ():
            if reference["uid"] not in by_uid:
                text = f"Active job went missing: {reference['name']}"
                self._record("MissingJob", text, type_="Normal")
                listed.discard(reference["uid"])
        self.status["active"] = [r for r in self.status.get("active") or () if r["uid"] in listed]

    def _record_success(self, job: Object) -> None:
        ended = (job.get("status") or {}).get("completionTime")
        if is_complete(job) and ended and ended > (self.status.get("lastSuccessfulTime") or ""):
            self.status["lastSuccessfulTime"] = ended

    def _trim_history(self) -> None:
        done = [job for job in self.jobs if is_finished(job) and not is_deleting(job)]
        good = [job for job in done if is_complete(job)]
        bad = [job for job in done if not is_complete(job)]
        for jobs, limit in (
            (good, self.spec.get("successfulJobsHistoryLimit", 3)),
            (bad, self.spec.get("failedJobsHistoryLimit", 1)),
        ):
            jobs.sort(key=lambda j: ((j.get("status") or {}).get("startTime") or "", j["metadata"]["name"]))
            for job in jobs[: max(0, len(jobs) - limit)]:
                self._delete(job)

    def _fire(self) -> None:
        if self.spec.get("suspend"):
            return
        try:
            times = schedule.parse(self.spec["schedule"], self.spec.get("timeZone"))
        except ValueError as error:
            text = f'unparseable schedule: "{self.spec["schedule"]}" : {error}'
            self._record("UnparseableSchedule", text)
            return
        if times.after(self.now) is None:
            text = f"invalid schedule: {self.spec['schedule']} : {_NEVER}"
            self._record("InvalidSchedule", text)
            return
        due, missed = self._due(times)
        following = times.after(self.now)
        if following is not None:
            self.plan.requeue_after((following - self.now).total_seconds())
        if missed > _MANY_MISSED:
            self._record(
                "TooManyMissedTimes",
                f"too many missed start times: {missed}. Set or decrease .spec.startingDeadlineSeconds or check clock skew",
            )
        if due is None or self.status.get("lastScheduleTime") == render(due):
            return
        deadline = self.spec.get("startingDeadlineSeconds")
        if deadline is not None and due + timedelta(seconds=deadline) < self.now:
            self._record(
                "MissSchedule", f"Missed scheduled time to start a job: {due:%a, %d %b %Y %H:%M:%S} +0000"
            )
            return
        self._start(due)

    def _due(self, times: schedule.Schedule) -> tuple[datetime | None, int]:
        """Return the latest scheduled time that passed without a Job, and the number of such times."""
        since = parse(self.status.get("lastScheduleTime") or self.cron_job["metadata"]["creationTimestamp"])
        deadline = self.spec.get("startingDeadlineSeconds")
        if deadline is not None:
            since = max(since, self.now - timedelta(seconds=deadline))
        last: datetime | None = None
        missed = 0
        upcoming = times.after(since)
        while upcoming is not None and upcoming <= self.now and missed <= 10 * _MANY_MISSED:
            last, missed = upcoming, missed + 1
            upcoming = times.after(upcoming)
        return last, missed

    def _start(self, due: datetime) -> None:
        policy = self.spec.get("concurrencyPolicy") or "Allow"
        running = self.status.get("active") or []
        if policy == "Forbid" and running:
            text = "Not starting job because prior execution is running and concurrency policy is Forbid"
            self._record("JobAlreadyActive", text, type_="Normal")
            return
        if policy == "Replace":
            by_uid = {job["metadata"]["uid"]: job for job in self.jobs}
            for reference in running:
                if reference["uid"] in by_uid:
                    self._delete(by_uid[reference["uid"]])
            self.status["active"] = []
        self.plan.do(
            Create(
                JOB,
                job_from(self.cron_job, due),
                done=Note(self.cron_job, "SuccessfulCreate", "Created job {name}"),
                failed=Note(self.cron_job, "FailedCreate", "Error creating job: {error}", "Warning"),
                exists_ok=True,
            )
        )
        self.status["lastScheduleTime"] = render(due)

    def _delete(self, job: Object) -> None:
        note = Note(self.cron_job, "SuccessfulDelete", "Deleted job {name}")
        self.plan.do(Delete(JOB, job, done=note, propagation="Background"))

    def _record(self, reason: str, message: str, *, type_: str = "Warning") -> None:
        self.plan.do(RecordEvent(Note(self.cron_job, reason, message, type_)))


def job_from(cron_job: Object, due: datetime) -> Object:
    """Return the Job of a scheduled time. Its name contains the time, so that it is created only once."""
    template = copy.deepcopy(cron_job["spec"]["jobTemplate"])
    source = template.get("metadata") or {}
    minutes = int(due.timestamp()) // 60
    metadata: dict[str, Any] = {
        "name": f"{cron_job['metadata']['name']}-{minutes}",
        "namespace": cron_job["metadata"]["namespace"],
        "annotations": {**(source.get("annotations") or {}), SCHEDULED_AT: render(due)},
        "ownerReferences": [controller_reference(CRON_JOB, cron_job)],
    }
    if source.get("labels"):
        metadata["labels"] = source["labels"]
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": template["spec"]}


def reference_to(job: Object) -> dict[str, Any]:
    """Return a Job's entry in `status.active`."""
    metadata = job["metadata"]
    return {
        "kind": "Job",
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "apiVersion": "batch/v1",
        "resourceVersion": metadata["resourceVersion"],
    }
