"""The plan of a Deployment: a ReplicaSet per revision, rolled out within surge and unavailability limits."""

from __future__ import annotations

import copy
from datetime import datetime
from typing import Any

from kapsa.devcluster.embedded.controllers.machinery.conditions import find, put, without
from kapsa.devcluster.embedded.controllers.machinery.kinds import DEPLOYMENT, REPLICA_SET, Object
from kapsa.devcluster.embedded.controllers.machinery.ownership import controller_reference, is_deleting
from kapsa.devcluster.embedded.controllers.machinery.plan import (
    Create,
    Delete,
    Note,
    Update,
    UpdateStatus,
    WritePlan,
)
from kapsa.devcluster.embedded.controllers.machinery.pod_state import is_finished
from kapsa.devcluster.embedded.controllers.machinery.timestamps import render, seconds_since
from kapsa.devcluster.embedded.controllers.workloads import rollout
from kapsa.devcluster.embedded.controllers.workloads.rollout import (
    DESIRED,
    MAXIMUM,
    age_key,
    max_surge,
    replicas,
)
from kapsa.devcluster.embedded.controllers.workloads.templates import HASH_LABEL, safe_hash, same_template

REVISION = "deployment.kubernetes.io/revision"
HISTORY = "deployment.kubernetes.io/revision-history"
_OWN_ANNOTATIONS = {
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    HISTORY,
    DESIRED,
    MAXIMUM,
    "deprecated.deployment.rollback.to",
}
_HISTORY_CHARACTERS = 2000
_NAME_LIMIT = 253
# kube-controller-manager treats this value as "no deadline".
_NO_DEADLINE = 2**31 - 1


def plan(deployment: Object, replica_sets: list[Object], pods: list[Object], now: datetime) -> WritePlan:
    """Plan the next step of a Deployment from its ReplicaSets and their pods."""
    return _Sync(deployment, replica_sets, pods, now).run()


class _Sync:
    def __init__(
        self, deployment: Object, replica_sets: list[Object], pods: list[Object], now: datetime
    ) -> None:
        self.deployment = deployment
        self.now = render(now)
        self.clock = now
        self.pods = pods
        self.plan = WritePlan()
        self.status: dict[str, Any] = copy.deepcopy(deployment.get("status") or {})
        self.revision: str | None = None
        ordered = sorted(replica_sets, key=age_key)
        template = deployment["spec"]["template"]
        self.newest = next((rs for rs in ordered if same_template(rs["spec"]["template"], template)), None)
        self.olds = [rs for rs in ordered if rs is not self.newest]

    @property
    def replica_sets(self) -> list[Object]:
        return [*self.olds, self.newest] if self.newest else self.olds

    @property
    def spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.deployment["spec"]
        return spec

    @property
    def deadline(self) -> int | None:
        value = self.spec.get("progressDeadlineSeconds")
        return None if value in (None, _NO_DEADLINE) else int(value)

    def run(self) -> WritePlan:
        if is_deleting(self.deployment):
            self._write_status(estimate=False)
            return self.plan
        self._record_pause()
        if self.newest is not None:
            self._sync_newest(self.newest)
        if self.spec.get("paused") or self._is_scaling():
            self._scale()
            if self.spec.get("paused"):
                self._clean_up()
            self._write_status(estimate=False)
        elif rollout.is_rolling(self.deployment):
            self._roll()
        else:
            self._recreate()
        return self.plan

    # -- strategies ---------------------------------------------------------------------------------------

    def _roll(self) -> None:
        if self.newest is None:
            self._create_newest()
        elif not self._grow(self.newest) and not self._shrink(self.newest) and self._is_complete(self.status):
            self._clean_up()
        self._write_status(estimate=True)

    def _grow(self, newest: Object) -> bool:
        size, desired = replicas(newest), replicas(self.deployment)
        if size == desired:
            return False
        total = sum(replicas(rs) for rs in self.replica_sets)
        target = desired if size > desired else rollout.new_size(self.deployment, size, total)
        return self._resize(newest, target)

    def _shrink(self, newest: Object) -> bool:
        sizes = rollout.shrink_old(self.deployment, newest, [rs for rs in self.olds if replicas(rs)])
        for old in self.olds:
            if old["metadata"]["name"] in sizes:
                self._resize(old, sizes[old["metadata"]["name"]])
        return bool(sizes)

    def _recreate(self) -> None:
        shrunk = [self._resize(old, 0) for old in self.olds if replicas(old)]
        if not any(shrunk) and not self._old_pods_live():
            if self.newest is None:
                self._create_newest()
            elif not self._resize(self.newest, replicas(self.deployment)) and self._is_complete(self.status):
                self._clean_up()
        self._write_status(estimate=True)

    def _old_pods_live(self) -> bool:
        newest = self.newest["metadata"]["uid"] if self.newest else None
        if any((rs.get("status") or {}).get("replicas") for rs in self.olds):
            return True
        for pod in self.pods:
            owners = [r["uid"] for r in pod["metadata"].get("ownerReferences") or ()]
            if newest not in owners and not is_finished(pod):
                return True
        return False

    def _is_scaling(self) -> bool:
        desired = replicas(self.deployment)
        marks = (rollout.annotated(rs, DESIRED) for rs in self.replica_sets if replicas(rs))
        return any(mark is not None and mark != desired for mark in marks)

    def _scale(self) -> None:
        active = [rs for rs in self.replica_sets if replicas(rs)]
        if len(active) <= 1:
            newest_first = [rs for rs in [self.newest, *reversed(self.olds)] if rs is not None]
            target = active[0] if active else next(iter(newest_first), None)
            if target is not None:
                self._resize(target, replicas(self.deployment))
        elif self.newest is not None and rollout.is_saturated(self.deployment, self.newest):
            for old in self.olds:
                self._resize(old, 0)
        elif rollout.is_rolling(self.deployment):
            sizes = rollout.proportional(self.deployment, active)
            for rs in active:
                self._resize(rs, sizes[rs["metadata"]["name"]], marks_too=True)

    # -- ReplicaSets --------------------------------------------------------------------------------------

    def _create_newest(self) -> None:
        metadata, template = self.deployment["metadata"], copy.deepcopy(self.spec["template"])
        digest = safe_hash(template, self.status.get("collisionCount"))
        labels = {**((template.get("metadata") or {}).get("labels") or {}), HASH_LABEL: digest}
        template["metadata"] = {**(template.get("metadata") or {}), "labels": labels}
        selector = copy.deepcopy(self.spec["selector"])
        selector["matchLabels"] = {**(selector.get("matchLabels") or {}), HASH_LABEL: digest}
        size = rollout.new_size(self.deployment, 0, sum(replicas(rs) for rs in self.olds))
        name = f"{metadata['name'][: _NAME_LIMIT - len(digest) - 1]}-{digest}"
        revision = self._next_revision()
        replica_set: Object = {
            "apiVersion": REPLICA_SET.api_version,
            "kind": REPLICA_SET.kind,
            "metadata": {
                "name": name,
                "namespace": metadata["namespace"],
                "labels": labels,
                "annotations": {**self._copied_annotations(), REVISION: str(revision), **self._marks()},
                "ownerReferences": [controller_reference(DEPLOYMENT, self.deployment)],
            },
            "spec": {"replicas": size, "selector": selector, "template": template},
        }
        if self.spec.get("minReadySeconds"):
            replica_set["spec"]["minReadySeconds"] = self.spec["minReadySeconds"]
        done = (
            self._note("ScalingReplicaSet", f"Scaled up replica set {name} from 0 to {size}")
            if size
            else None
        )
        failed = self._note(
            "ReplicaSetCreateError", f'Failed to create new replica set "{name}": {{error}}', type_="Warning"
        )
        self.plan.do(Create(REPLICA_SET, replica_set, done, failed, exists_ok=True))
        self.revision = str(revision)
        if self.deadline is not None:
            self._progress("True", "NewReplicaSetCreated", f'Created new replica set "{name}"')

    def _sync_newest(self, newest: Object) -> None:
        """Copy annotations, revision and minReadySeconds to the newest ReplicaSet, and its revision back."""
        annotations = newest["metadata"].get("annotations") or {}
        changed = {**annotations, **self._copied_annotations()}
        revision = self._next_revision()
        if int(annotations.get(REVISION) or 0) < revision:
            changed[REVISION] = str(revision)
            if REVISION in annotations:
                changed[HISTORY] = _longer_history(annotations.get(HISTORY, ""), annotations[REVISION])
        seconds = self.spec.get("minReadySeconds") or 0
        if changed != annotations or (newest["spec"].get("minReadySeconds") or 0) != seconds:
            newest = copy.deepcopy(newest)
            newest["metadata"]["annotations"] = changed
            newest["spec"]["minReadySeconds"] = seconds
            self.plan.do(Update(REPLICA_SET, newest))
            self.newest = newest
        self.revision = changed[REVISION]
        if self.deadline is not None and find(self.status.get("conditions"), "Progressing") is None:
            self._progress(
                "True", "FoundNewReplicaSet", f'Found new replica set "{newest["metadata"]["name"]}"'
            )

    def _resize(self, rs: Object, size: int, *, marks_too: bool = False) -> bool:
        before, marks = replicas(rs), self._marks()
        annotations = rs["metadata"].get("annotations") or {}
        stale = any(annotations.get(key) != value for key, value in marks.items())
        if before == size and not (marks_too and stale):
            return False
        changed = copy.deepcopy(rs)
        changed["spec"]["replicas"] = size
        changed["metadata"]["annotations"] = {**annotations, **marks}
        done = None
        if before != size:
            way, name = "up" if before < size else "down", rs["metadata"]["name"]
            done = self._note("ScalingReplicaSet", f"Scaled {way} replica set {name} from {before} to {size}")
        # One write for both changes: the first would make the resourceVersion of the second stale.
        others = [a for a in self.plan.actions if not (isinstance(a, Update) and a.object is rs)]
        self.plan.actions = others
        self.plan.do(Update(REPLICA_SET, changed, done))
        return before != size

    def _clean_up(self) -> None:
        limit = self.spec.get("revisionHistoryLimit")
        if limit is None:
            return
        kept = [rs for rs in self.olds if not is_deleting(rs)]
        surplus = sorted(kept, key=lambda rs: (_revision(rs), age_key(rs)))[: max(0, len(kept) - limit)]
        for rs in surplus:
            status = rs.get("status") or {}
            unseen = rs["metadata"].get("generation", 0) > status.get("observedGeneration", 0)
            if not (status.get("replicas") or replicas(rs) or unseen):
                self.plan.do(Delete(REPLICA_SET, rs))

    def _marks(self) -> dict[str, str]:
        desired = replicas(self.deployment)
        return {DESIRED: str(desired), MAXIMUM: str(desired + max_surge(self.deployment))}

    def _copied_annotations(self) -> dict[str, str]:
        annotations = self.deployment["metadata"].get("annotations") or {}
        return {key: value for key, value in annotations.items() if key not in _OWN_ANNOTATIONS}

    def _next_revision(self) -> int:
        return max((_revision(rs) for rs in self.olds), default=0) + 1

    # -- status -------------------------------------------------------------------------------------------

    def _record_pause(self) -> None:
        current = find(self.status.get("conditions"), "Progressing")
        reason = current.get("reason") if current else None
        if self.deadline is None or reason == "ProgressDeadlineExceeded":
            return
        if self.spec.get("paused") and reason != "DeploymentPaused":
            self._progress("Unknown", "DeploymentPaused", "Deployment is paused")
        elif not self.spec.get("paused") and reason == "DeploymentPaused":
            self._progress("Unknown", "DeploymentResumed", "Deployment is resumed")

    def _write_status(self, *, estimate: bool) -> None:
        status = self._counted()
        if estimate:
            if self.deadline is None:
                status["conditions"] = without(status["conditions"], "Progressing")
            else:
                self._estimate(status, self.deadline)
            self._copy_failure(status)
        changed = {**self.deployment, "status": status}
        annotations = self.deployment["metadata"].get("annotations") or {}
        if self.revision is not None and annotations.get(REVISION) != self.revision:
            annotations = {**annotations, REVISION: self.revision}
            changed["metadata"] = {**self.deployment["metadata"], "annotations": annotations}
        if changed != self.deployment:
            self.plan.do(UpdateStatus(DEPLOYMENT, changed))
        if estimate:
            self._requeue_at_deadline(status)

    def _counted(self) -> dict[str, Any]:
        statuses = [rs.get("status") or {} for rs in self.replica_sets]
        ready = sum(s.get("readyReplicas", 0) for s in statuses)
        available = sum(s.get("availableReplicas", 0) for s in statuses)
        current_size = sum(replicas(rs) for rs in self.replica_sets)
        newest = (self.newest.get("status") or {}) if self.newest else {}
        counters = {
            "replicas": sum(s.get("replicas", 0) for s in statuses),
            "updatedReplicas": newest.get("replicas", 0),
            "readyReplicas": ready,
            "availableReplicas": available,
            "unavailableReplicas": max(0, current_size - available),
        }
        status: dict[str, Any] = {"observedGeneration": self.deployment["metadata"].get("generation", 1)}
        status.update({key: value for key, value in counters.items() if value})
        status["terminatingReplicas"] = sum(s.get("terminatingReplicas", 0) for s in statuses)
        if "collisionCount" in self.status:
            status["collisionCount"] = self.status["collisionCount"]
        enough = available >= replicas(self.deployment) - rollout.max_unavailable(self.deployment)
        status["conditions"] = put(
            list(self.status.get("conditions") or []),
            self._condition(
                "Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability."
            )
            if enough
            else self._condition(
                "Available",
                "False",
                "MinimumReplicasUnavailable",
                "Deployment does not have minimum availability.",
            ),
        )
        return status

    def _estimate(self, status: dict[str, Any], deadline: int) -> None:
        current = find(self.status.get("conditions"), "Progressing")
        settled = current is not None and current.get("reason") == "NewReplicaSetAvailable"
        if settled and status.get("replicas", 0) == status.get("updatedReplicas", 0):
            return
        subject = f'Deployment "{self.deployment["metadata"]["name"]}"'
        if self.newest is not None:
            subject = f'ReplicaSet "{self.newest["metadata"]["name"]}"'
        conditions = status["conditions"]
        if self._is_complete(status):
            message = f"{subject} has successfully progressed."
            done = self._condition("Progressing", "True", "NewReplicaSetAvailable", message)
            status["conditions"] = put(conditions, done)
        elif _progressed(self.deployment.get("status") or {}, status):
            moved = self._condition("Progressing", "True", "ReplicaSetUpdated", f"{subject} is progressing.")
            if current is not None and current["status"] == "True":
                moved["lastTransitionTime"] = current["lastTransitionTime"]
            status["conditions"] = [*without(conditions, "Progressing"), moved]
        elif current is not None and self._timed_out(current, deadline):
            message = f"{subject} has timed out progressing."
            late = self._condition("Progressing", "False", "ProgressDeadlineExceeded", message)
            status["conditions"] = put(conditions, late)

    def _timed_out(self, current: dict[str, Any], deadline: int) -> bool:
        if current.get("reason") == "NewReplicaSetAvailable":
            return False
        if current.get("reason") == "ProgressDeadlineExceeded":
            return True
        return seconds_since(current["lastUpdateTime"], self.clock) > deadline

    def _requeue_at_deadline(self, status: dict[str, Any]) -> None:
        """Reconcile again at the progress deadline: a stuck rollout causes no events."""
        current = find(status["conditions"], "Progressing")
        if self.deadline is None or current is None or self._is_complete(status):
            return
        if current.get("reason") not in ("NewReplicaSetAvailable", "ProgressDeadlineExceeded"):
            self.plan.requeue_after(self.deadline - seconds_since(current["lastUpdateTime"], self.clock) + 1)

    def _copy_failure(self, status: dict[str, Any]) -> None:
        holders = [self.newest] if self.newest else []
        for rs in [*holders, *self.olds]:
            failure = find((rs.get("status") or {}).get("conditions"), "ReplicaFailure")
            if failure is not None:
                copied = {**failure, "lastUpdateTime": failure["lastTransitionTime"]}
                status["conditions"] = put(status["conditions"], copied)
                return
        status["conditions"] = without(status["conditions"], "ReplicaFailure")

    def _is_complete(self, status: dict[str, Any]) -> bool:
        desired = replicas(self.deployment)
        counters = ("updatedReplicas", "replicas", "availableReplicas")
        observed = status.get("observedGeneration", 0) >= self.deployment["metadata"].get("generation", 1)
        return observed and all(status.get(counter, 0) == desired for counter in counters)

    def _progress(self, status: str, reason: str, message: str) -> None:
        condition = self._condition("Progressing", status, reason, message)
        self.status["conditions"] = put(list(self.status.get("conditions") or []), condition)

    def _condition(self, type_: str, status: str, reason: str, message: str) -> dict[str, Any]:
        return {
            "type": type_,
            "status": status,
            "lastUpdateTime": self.now,
            "lastTransitionTime": self.now,
            "reason": reason,
            "message": message,
        }

    def _note(self, reason: str, message: str, *, type_: str = "Normal") -> Note:
        return Note(self.deployment, reason, message, type_)


def collided(deployment: Object) -> Object:
    """Return the Deployment with its collision count raised: another ReplicaSet has the name it computed."""
    status = deployment.get("status") or {}
    return {**deployment, "status": {**status, "collisionCount": status.get("collisionCount", 0) + 1}}


def _progressed(before: dict[str, Any], after: dict[str, Any]) -> bool:
    def old_pods(status: dict[str, Any]) -> int:
        return int(status.get("replicas", 0)) - int(status.get("updatedReplicas", 0))

    grown = ("updatedReplicas", "readyReplicas", "availableReplicas")
    return old_pods(after) < old_pods(before) or any(after.get(c, 0) > before.get(c, 0) for c in grown)


def _revision(rs: Object) -> int:
    return rollout.annotated(rs, REVISION) or 0


def _longer_history(history: str, revision: str) -> str:
    entries = [entry for entry in history.split(",") if entry] + [revision]
    while len(",".join(entries)) > _HISTORY_CHARACTERS and len(entries) > 1:
        entries.pop(0)
    return ",".join(entries)
