"""The plan of a Job: pods run until enough have succeeded or too many have failed."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kapsa.devcluster.embedded.controllers.machinery.conditions import find, is_true
from kapsa.devcluster.embedded.controllers.machinery.kinds import JOB, POD, Object
from kapsa.devcluster.embedded.controllers.machinery.ownership import is_deleting
from kapsa.devcluster.embedded.controllers.machinery.plan import (
    BATCH_PAUSE,
    LARGEST_BATCH,
    Create,
    Delete,
    Note,
    RecordEvent,
    Update,
    UpdateStatus,
    WritePlan,
)
from kapsa.devcluster.embedded.controllers.machinery.pod_state import (
    is_active,
    is_ready,
    is_terminating,
    phase,
    restarts,
)
from kapsa.devcluster.embedded.controllers.machinery.timestamps import parse, render, seconds_since
from kapsa.devcluster.embedded.controllers.workloads.completion_indexes import (
    INDEX,
    compress,
    expand,
    index_of,
)
from kapsa.devcluster.embedded.controllers.workloads.failure_policy import action_for
from kapsa.devcluster.embedded.controllers.workloads.templates import pod_from

FINALIZER = "batch.kubernetes.io/job-tracking"
_FIRST_BACKOFF = 10.0
_LONGEST_BACKOFF = 600.0


def is_finished(job: Object) -> bool:
    """Return whether the Job has completed or failed."""
    conditions = (job.get("status") or {}).get("conditions")
    return is_true(conditions, "Complete") or is_true(conditions, "Failed")


def plan(job: Object, pods: list[Object], now: datetime) -> WritePlan:
    """Plan the next step of a Job."""
    if is_finished(job):
        return _after_finish(job, pods, now)
    if is_deleting(job):
        return _release(pods)
    return _Sync(job, pods, now).run()


def _after_finish(job: Object, pods: list[Object], now: datetime) -> WritePlan:
    plan = _release(pods)
    seconds = job["spec"].get("ttlSecondsAfterFinished")
    if seconds is not None and not is_deleting(job):
        conditions = job["status"]["conditions"]
        ended = next(c for c in conditions if c["type"] in ("Complete", "Failed") and c["status"] == "True")
        left = seconds - seconds_since(ended["lastTransitionTime"], now)
        if left <= 0:
            plan.do(Delete(JOB, job, propagation="Foreground"))
        else:
            plan.requeue_after(left)
    return plan


def _release(pods: list[Object]) -> WritePlan:
    plan = WritePlan()
    for pod in pods:
        if FINALIZER in (pod["metadata"].get("finalizers") or ()):
            plan.do(Update(POD, _without_finalizer(pod)))
    return plan


def _without_finalizer(pod: Object) -> Object:
    metadata = dict(pod["metadata"])
    rest = [f for f in metadata.pop("finalizers") if f != FINALIZER]
    if rest:
        metadata["finalizers"] = rest
    return {**pod, "metadata": metadata}


class _Sync:
    def __init__(self, job: Object, pods: list[Object], now: datetime) -> None:
        self.job, self.pods, self.now = job, pods, now
        self.spec: dict[str, Any] = job["spec"]
        self.before: dict[str, Any] = job.get("status") or {}
        self.plan = WritePlan()
        self.suspended = bool(self.spec.get("suspend"))
        self.indexed = self.spec.get("completionMode") == "Indexed"
        self.conditions: list[dict[str, Any]] = list(self.before.get("conditions") or [])
        self.start = self.before.get("startTime") or (None if self.suspended else render(now))
        self.active = [pod for pod in pods if is_active(pod) and not self._has_failed(pod)]
        self.completed = expand(self.before.get("completedIndexes") or "")
        self._count()

    def run(self) -> WritePlan:
        ending = self._ending()
        if ending is not None:
            for pod in self.active:
                self._delete(pod)
            self._finish_when_quiet(ending)
        elif self.suspended:
            for pod in self.active:
                self._delete(pod)
            self._record_suspension()
        else:
            self._record_suspension()
            self._run_pods()
            self._maybe_complete()
        self._write_status()
        for pod in self.pods:
            if pod["metadata"]["uid"] in self.stored_uncounted and self._is_tracked(pod):
                self.plan.do(Update(POD, _without_finalizer(pod)))
        return self.plan

    # -- counting -----------------------------------------------------------------------------------------

    def _count(self) -> None:
        """Move finished pods through uncountedTerminatedPods into the counters, each exactly once.

        A pod's uid is stored first, then its finalizer is removed, then the stored uid becomes a count.
        """
        stored = self.before.get("uncountedTerminatedPods") or {}
        self.stored_uncounted = {uid for uids in stored.values() for uid in uids}
        tracked = {pod["metadata"]["uid"] for pod in self.pods if self._is_tracked(pod)}
        self.uncounted: dict[str, list[str]] = {}
        self.counted: dict[str, int] = {}
        for outcome in ("succeeded", "failed"):
            uids = stored.get(outcome) or ()
            self.uncounted[outcome] = [uid for uid in uids if uid in tracked]
            gone = sum(uid not in tracked for uid in uids)
            self.counted[outcome] = int(self.before.get(outcome) or 0) + gone
        self.ignored: list[str] = []
        for pod in self.pods:
            uid = pod["metadata"]["uid"]
            if uid in self.stored_uncounted or uid not in tracked:
                continue
            if phase(pod) == "Succeeded":
                self._count_success(pod)
            elif self._has_failed(pod):
                if action_for(self.job, pod)[0] == "Ignore":
                    self.ignored.append(uid)
                    self.plan.do(Update(POD, _without_finalizer(pod)))
                else:
                    self.uncounted["failed"].append(uid)
        self.succeeded = self.counted["succeeded"] + len(self.uncounted["succeeded"])
        if self.indexed:
            self.succeeded = len(self.completed)
        self.failed = self.counted["failed"] + len(self.uncounted["failed"])

    def _count_success(self, pod: Object) -> None:
        if self.indexed:
            index = index_of(pod)
            if index is None or index >= self.spec["completions"]:
                return
            self.completed.add(index)
        self.uncounted["succeeded"].append(pod["metadata"]["uid"])

    def _has_failed(self, pod: Object) -> bool:
        if phase(pod) == "Failed":
            return True
        if self.spec.get("podReplacementPolicy") == "Failed":
            return False
        # A pod that is being deleted may never report how it ended.
        return is_deleting(pod) and phase(pod) != "Succeeded"

    def _is_tracked(self, pod: Object) -> bool:
        return FINALIZER in (pod["metadata"].get("finalizers") or ())

    # -- the end ------------------------------------------------------------------------------------------

    def _ending(self) -> dict[str, Any] | None:
        """Return the condition that ends the Job, or None while it continues."""
        for interim in ("SuccessCriteriaMet", "FailureTarget"):
            if is_true(self.conditions, interim):
                return find(self.conditions, interim)
        for pod in self.pods:
            if phase(pod) == "Failed":
                action, message = action_for(self.job, pod)
                if action == "FailJob":
                    return self._end("FailureTarget", "PodFailurePolicy", message)
        if self.failed > self.spec.get("backoffLimit", 6) or self._restarted_too_often():
            message = "Job has reached the specified backoff limit"
            return self._end("FailureTarget", "BackoffLimitExceeded", message)
        deadline = self.spec.get("activeDeadlineSeconds")
        if deadline is not None and self.start and not self.suspended:
            left = deadline - seconds_since(self.start, self.now)
            if left <= 0:
                message = "Job was active longer than specified deadline"
                return self._end("FailureTarget", "DeadlineExceeded", message)
            self.plan.requeue_after(left)
        return None

    def _restarted_too_often(self) -> bool:
        if self.spec["template"]["spec"].get("restartPolicy") != "OnFailure":
            return False
        total = sum(restarts(pod) for pod in self.active)
        limit = self.spec.get("backoffLimit", 6)
        return total > 0 if limit == 0 else total >= limit

    def _end(self, interim: str, reason: str, message: str) -> dict[str, Any]:
        condition = self._condition(interim, "True", reason, message)
        self.conditions = [*self.conditions, condition]
        return condition

    def _finish_when_quiet(self, ending: dict[str, Any]) -> None:
        """Add the final condition once each pod is gone or counted."""
        planned = self.stored_uncounted | set(self.uncounted["succeeded"]) | set(self.uncounted["failed"])
        if self.active or planned or any(is_terminating(pod) for pod in self.pods):
            return
        good = ending["type"] == "SuccessCriteriaMet"
        final = "Complete" if good else "Failed"
        self.conditions = [
            *self.conditions,
            self._condition(final, "True", ending.get("reason") or "", ending.get("message") or ""),
        ]
        if good:
            self.plan.do(RecordEvent(Note(self.job, "Completed", "Job completed")))
        else:
            self.plan.do(RecordEvent(Note(self.job, ending["reason"], ending["message"], "Warning")))

    def _maybe_complete(self) -> None:
        completions = self.spec.get("completions")
        any_success = self.succeeded > 0 and not self.active
        if any_success if completions is None else self.succeeded >= completions:
            self._finish_when_quiet(
                self._end(
                    "SuccessCriteriaMet", "CompletionsReached", "Reached expected number of succeeded pods"
                )
            )

    # -- pods ---------------------------------------------------------------------------------------------

    def _run_pods(self) -> None:
        parallel = self.spec.get("parallelism", 1)
        completions = self.spec.get("completions")
        active = len(self.active)
        if completions is None:
            target = active if self.succeeded else parallel
        else:
            target = min(parallel, completions - self.succeeded)
        target = max(0, target)
        if active > target:
            for pod in sorted(
                self.active, key=lambda p: (is_ready(p), p["metadata"].get("creationTimestamp", ""))
            )[: active - target]:
                self._delete(pod)
            return
        missing = target - active
        if self.spec.get("podReplacementPolicy") == "Failed":
            missing -= sum(is_terminating(pod) for pod in self.pods)
        if missing <= 0:
            return
        wait = self._backoff()
        if wait > 0:
            self.plan.requeue_after(wait)
            return
        if missing > LARGEST_BATCH:
            missing = LARGEST_BATCH
            self.plan.requeue_after(BATCH_PAUSE)
        for index in self._next_indexes(missing) if self.indexed else [None] * missing:
            self._create(index)

    def _next_indexes(self, count: int) -> list[int | None]:
        taken = self.completed | {index for index in map(index_of, self.active) if index is not None}
        free: list[int | None] = [i for i in range(self.spec["completions"]) if i not in taken]
        return free[:count]

    def _backoff(self) -> float:
        """Return the seconds to wait before replacing failed pods.

        They double with each failure since the last success.
        """
        ends = [(_ended(pod), phase(pod)) for pod in self.pods if _ended(pod)]
        failures = [end for end, outcome in ends if outcome == "Failed"]
        successes = [end for end, outcome in ends if outcome == "Succeeded"]
        last_success = max(successes, default="")
        recent = [end for end in failures if end > last_success]
        if not recent:
            return 0.0
        delay: float = min(_FIRST_BACKOFF * 2 ** (len(recent) - 1), _LONGEST_BACKOFF)
        return delay - (self.now - parse(max(recent))).total_seconds()

    def _create(self, index: int | None) -> None:
        pod = pod_from(self.spec["template"], JOB, self.job, finalizers=(FINALIZER,))
        if index is not None:
            self._number(pod, index)
        self.plan.do(
            Create(
                POD,
                pod,
                done=Note(self.job, "SuccessfulCreate", "Created pod: {name}"),
                failed=Note(self.job, "FailedCreate", "Error creating: {error}", "Warning"),
            )
        )

    def _number(self, pod: Object, index: int) -> None:
        name, metadata = self.job["metadata"]["name"], pod["metadata"]
        metadata["generateName"] = f"{name}-{index}-"
        metadata["labels"] = {**(metadata.get("labels") or {}), INDEX: str(index)}
        metadata["annotations"] = {**(metadata.get("annotations") or {}), INDEX: str(index)}
        if not pod["spec"].get("hostname"):
            pod["spec"]["hostname"] = f"{name}-{index}"
        source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX}']"}}
        for container in [*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or ())]:
            container["env"] = [
                *(container.get("env") or []),
                {"name": "JOB_COMPLETION_INDEX", "valueFrom": source},
            ]

    def _delete(self, pod: Object) -> None:
        self.plan.do(Delete(POD, pod, done=Note(self.job, "SuccessfulDelete", "Deleted pod: {name}")))

    # -- status -------------------------------------------------------------------------------------------

    def _record_suspension(self) -> None:
        current = find(self.conditions, "Suspended")
        if self.suspended and not is_true(self.conditions, "Suspended"):
            self._suspension("True", "JobSuspended", "Job suspended", "Suspended")
        elif not self.suspended and current is not None and current["status"] == "True":
            self._suspension("False", "JobResumed", "Job resumed", "Resumed")
            self.start = render(self.now)

    def _suspension(self, status: str, reason: str, message: str, event: str) -> None:
        condition = self._condition("Suspended", status, reason, message)
        self.conditions = [c for c in self.conditions if c["type"] != "Suspended"] + [condition]
        self.plan.do(RecordEvent(Note(self.job, event, message)))

    def _write_status(self) -> None:
        status: dict[str, Any] = {}
        if self.conditions:
            status["conditions"] = self.conditions
        if self.start:
            status["startTime"] = self.start
        final = find(self.conditions, "Complete")
        if final is not None:
            status["completionTime"] = self.before.get("completionTime") or final["lastTransitionTime"]
        counters = {
            "active": len(self.active),
            "succeeded": len(self.completed) if self.indexed else self.counted["succeeded"],
            "failed": self.counted["failed"],
        }
        status.update({key: value for key, value in counters.items() if value})
        status["terminating"] = sum(is_terminating(pod) for pod in self.pods)
        status["ready"] = sum(is_ready(pod) for pod in self.active)
        if self.indexed and self.completed:
            status["completedIndexes"] = compress(self.completed)
        status["uncountedTerminatedPods"] = {key: uids for key, uids in self.uncounted.items() if uids}
        if status != self.before:
            self.plan.do(UpdateStatus(JOB, {**self.job, "status": status}))

    def _condition(self, type_: str, status: str, reason: str, message: str) -> dict[str, Any]:
        moment = render(self.now)
        return {
            "type": type_,
            "status": status,
            "lastProbeTime": moment,
            "lastTransitionTime": moment,
            "reason": reason,
            "message": message,
        }


def _ended(pod: Object) -> str:
    """Return the time at which the last container of a finished pod ended."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    ends = [((s.get("state") or {}).get("terminated") or {}).get("finishedAt") or "" for s in statuses]
    return max(ends, default="")
