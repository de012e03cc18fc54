"""The plan of a StatefulSet: pods with stable names, an order, and their own storage."""

from __future__ import annotations

import copy
import re
from datetime import datetime
from typing import Any

from kapsa.devcluster.embedded.controllers.machinery.kinds import CLAIM, POD, STATEFUL_SET, Object
from kapsa.devcluster.embedded.controllers.machinery.ownership import controller_reference, is_deleting
from kapsa.devcluster.embedded.controllers.machinery.plan import (
    BATCH_PAUSE,
    LARGEST_BATCH,
    Action,
    Create,
    Delete,
    Note,
    Update,
    UpdateStatus,
    WritePlan,
)
from kapsa.devcluster.embedded.controllers.machinery.pod_state import (
    available_in,
    is_finished,
    is_ready,
    phase,
)
from kapsa.devcluster.embedded.controllers.workloads import revisions
from kapsa.devcluster.embedded.controllers.workloads.revisions import HASH_LABEL, REVISION_LABEL, History
from kapsa.devcluster.embedded.controllers.workloads.rollout import replicas, scaled
from kapsa.devcluster.embedded.controllers.workloads.templates import pod_from

POD_NAME_LABEL = "statefulset.kubernetes.io/pod-name"
INDEX_LABEL = "apps.kubernetes.io/pod-index"
_ORDINAL = re.compile(r"^(.*)-([0-9]+)$")


def parent_and_ordinal(pod: Object) -> tuple[str, int]:
    """Split a pod's name: `web-3` into ("web", 3). A name of another form has ordinal -1."""
    match = _ORDINAL.match(pod["metadata"]["name"])
    return (match.group(1), int(match.group(2))) if match else ("", -1)


def plan(
    owner: Object, pods: list[Object], history: list[Object], claims: dict[str, Object], now: datetime
) -> WritePlan:
    """Plan the next step of a StatefulSet.

    `claims` holds the PersistentVolumeClaims of its namespace by name.
    """
    return _Sync(owner, pods, history, claims, now).run()


class _Sync:
    def __init__(
        self,
        owner: Object,
        pods: list[Object],
        history: list[Object],
        claims: dict[str, Object],
        now: datetime,
    ) -> None:
        self.owner, self.claims, self.now = owner, claims, now
        self.spec: dict[str, Any] = owner["spec"]
        self.plan = WritePlan()
        self.start = (self.spec.get("ordinals") or {}).get("start") or 0
        self.count = replicas(owner)
        self.in_order = self.spec.get("podManagementPolicy", "OrderedReady") != "Parallel"
        self.wait = self.spec.get("minReadySeconds") or 0
        self.history: History = revisions.record(self.plan, STATEFUL_SET, owner, history, label=HASH_LABEL)
        current = self.history.named((owner.get("status") or {}).get("currentRevision") or "")
        self.current = current or self.history.latest
        by_ordinal = {parent_and_ordinal(pod)[1]: pod for pod in pods}
        ordinals = range(self.start, self.start + self.count)
        self.replicas: dict[int, Object | None] = {ordinal: by_ordinal.get(ordinal) for ordinal in ordinals}
        self.condemned = [
            by_ordinal[o] for o in sorted(by_ordinal, reverse=True) if o >= 0 and o not in ordinals
        ]
        self.pods = pods

    def run(self) -> WritePlan:
        if not is_deleting(self.owner):
            settled = self._fill() and self._scale_down()
            if settled and (self.spec.get("updateStrategy") or {}).get("type") != "OnDelete":
                self._update()
        self._write_status()
        live = {self._revision(pod) for pod in self.pods} | {self.current["metadata"]["name"]}
        limit = self.spec.get("revisionHistoryLimit")
        revisions.truncate(self.plan, self.history, live, 10 if limit is None else int(limit))
        return self.plan

    # -- pods ---------------------------------------------------------------------------------------------

    def _fill(self) -> bool:
        """Create missing pods. Returns False while the next ordinal must wait."""
        created = 0
        for ordinal, pod in self.replicas.items():
            if pod is None:
                if created == LARGEST_BATCH:
                    self.plan.requeue_after(BATCH_PAUSE)
                    return False
                self._create(ordinal)
                created += 1
                blocked = True
            elif is_finished(pod):
                if not is_deleting(pod):
                    self._delete(pod)
                blocked = True
            else:
                blocked = is_deleting(pod) or not self._is_available(pod)
                self._repair(pod, ordinal)
            if blocked and self.in_order:
                return False
        return True

    def _scale_down(self) -> bool:
        for pod in self.condemned:
            self._retain_claims(pod)
        unhealthy = self._first_unhealthy()
        for pod in self.condemned:
            if is_deleting(pod):
                if self.in_order:
                    return False
                continue
            if self.in_order and not self._is_available(pod) and pod is not unhealthy:
                return False
            self._delete(pod)
            if self.in_order:
                return False
        return True

    def _first_unhealthy(self) -> Object | None:
        ordered = [*self.replicas.values(), *reversed(self.condemned)]
        return next(
            (p for p in ordered if p is not None and (is_deleting(p) or not self._is_available(p))), None
        )

    def _update(self) -> None:
        """Delete pods of an old revision, highest ordinal first, up to the number that may be unavailable."""
        rolling = (self.spec.get("updateStrategy") or {}).get("rollingUpdate") or {}
        partition = rolling.get("partition") or 0
        allowed = max(1, scaled(rolling.get("maxUnavailable", 1), self.count, up=False))
        down = sum(p is None or is_deleting(p) or not self._is_available(p) for p in self.replicas.values())
        budget = allowed - down
        for ordinal in sorted(self.replicas, reverse=True):
            pod = self.replicas[ordinal]
            if budget <= 0 or ordinal - self.start < partition:
                return
            outdated = pod is not None and self._revision(pod) != self.history.latest["metadata"]["name"]
            if pod is not None and outdated and not is_deleting(pod):
                self._delete(pod)
                budget -= 1

    def _create(self, ordinal: int) -> None:
        rolling = (self.spec.get("updateStrategy") or {}).get("rollingUpdate")
        held = (rolling or {}).get("partition") or 0
        if rolling is None and (self.spec.get("updateStrategy") or {}).get("type") == "RollingUpdate":
            held = (self.owner.get("status") or {}).get("currentReplicas") or 0
        revision = self.current if ordinal - self.start < held else self.history.latest
        pod = pod_from(revisions.template(revision), STATEFUL_SET, self.owner)
        name = f"{self.owner['metadata']['name']}-{ordinal}"
        pod["metadata"]["name"] = name
        pod["metadata"]["labels"] = {
            **(pod["metadata"].get("labels") or {}),
            POD_NAME_LABEL: name,
            INDEX_LABEL: str(ordinal),
            REVISION_LABEL: revision["metadata"]["name"],
        }
        pod["spec"]["hostname"] = name
        if self.spec.get("serviceName"):
            pod["spec"]["subdomain"] = self.spec["serviceName"]
        self._mount(pod, ordinal)
        self._create_claims(name, ordinal)
        text = f"Create Pod {name} in StatefulSet {self.owner['metadata']['name']}"
        self.plan.do(
            Create(
                POD,
                pod,
                done=Note(self.owner, "SuccessfulCreate", f"{text} successful"),
                failed=Note(self.owner, "FailedCreate", f"{text} failed error: {{error}}", "Warning"),
                exists_ok=True,
            )
        )

    def _mount(self, pod: Object, ordinal: int) -> None:
        templates = [c["metadata"]["name"] for c in self.spec.get("volumeClaimTemplates") or ()]
        if not templates:
            return
        own = [
            {"name": n, "persistentVolumeClaim": {"claimName": self._claim_name(n, ordinal)}}
            for n in templates
        ]
        rest = [volume for volume in pod["spec"].get("volumes") or () if volume["name"] not in templates]
        pod["spec"]["volumes"] = [*own, *rest]

    def _delete(self, pod: Object) -> None:
        text = f"Delete Pod {pod['metadata']['name']} in StatefulSet {self.owner['metadata']['name']}"
        self.plan.do(
            Delete(
                POD,
                pod,
                done=Note(self.owner, "SuccessfulDelete", f"{text} successful"),
                failed=Note(self.owner, "FailedDelete", f"{text} failed error: {{error}}", "Warning"),
            )
        )

    def _repair(self, pod: Object, ordinal: int) -> None:
        if phase(pod) == "Pending":
            self._create_claims(pod["metadata"]["name"], ordinal)
        self._retain_claims(pod)
        name, labels = pod["metadata"]["name"], pod["metadata"].get("labels") or {}
        if labels.get(POD_NAME_LABEL) != name:
            labels = {**labels, POD_NAME_LABEL: name, INDEX_LABEL: str(ordinal)}
            self.plan.do(Update(POD, {**pod, "metadata": {**pod["metadata"], "labels": labels}}))

    # -- claims -------------------------------------------------------------------------------------------

    def _claim_name(self, template: str, ordinal: int) -> str:
        return f"{template}-{self.owner['metadata']['name']}-{ordinal}"

    def _create_claims(self, pod_name: str, ordinal: int) -> None:
        for template in self.spec.get("volumeClaimTemplates") or ():
            name = self._claim_name(template["metadata"]["name"], ordinal)
            if name not in self.claims:
                self.plan.do(self._claim_creation(template, name, pod_name))

    def _claim_creation(self, template: Object, name: str, pod_name: str) -> Action:
        claim = copy.deepcopy(template)
        claim.pop("status", None)
        selected = self.spec["selector"].get("matchLabels") or {}
        labels = {**(claim["metadata"].get("labels") or {}), **selected}
        metadata = {**claim["metadata"], "name": name, "namespace": self.owner["metadata"]["namespace"]}
        metadata["labels"] = labels
        if self._policy()["whenDeleted"] == "Delete":
            metadata["ownerReferences"] = [controller_reference(STATEFUL_SET, self.owner)]
        claim.update(apiVersion="v1", kind="PersistentVolumeClaim", metadata=metadata)
        text = f"Create Claim {name} Pod {pod_name} in StatefulSet {self.owner['metadata']['name']} success"
        return Create(CLAIM, claim, done=Note(self.owner, "SuccessfulCreate", text), exists_ok=True)

    def _policy(self) -> dict[str, str]:
        policy = self.spec.get("persistentVolumeClaimRetentionPolicy") or {}
        return {when: policy.get(when, "Retain") for when in ("whenDeleted", "whenScaled")}

    def _retain_claims(self, pod: Object) -> None:
        """Set or remove the owner of the claims, as the retention policy specifies."""
        ordinal = parent_and_ordinal(pod)[1]
        policy, scaled_down = self._policy(), ordinal not in self.replicas
        by_pod = policy["whenScaled"] == "Delete" and scaled_down
        by_set = policy["whenDeleted"] == "Delete" and not by_pod
        for template in self.spec.get("volumeClaimTemplates") or ():
            claim = self.claims.get(self._claim_name(template["metadata"]["name"], ordinal))
            if claim is None:
                continue
            before = claim["metadata"].get("ownerReferences") or []
            own = {self.owner["metadata"]["uid"], pod["metadata"]["uid"]}
            after = [r for r in before if r["uid"] not in own]
            if by_pod:
                after.append(controller_reference(POD, pod))
            elif by_set:
                after.append(controller_reference(STATEFUL_SET, self.owner))
            if after != before:
                metadata = {**claim["metadata"], "ownerReferences": after}
                self.plan.do(Update(CLAIM, {**claim, "metadata": metadata}))

    # -- status -------------------------------------------------------------------------------------------

    def _write_status(self) -> None:
        # Existing pods only: a pod planned in this step is counted once it exists.
        live = [pod for pod in self.pods if not is_deleting(pod)]
        current, latest = self.current["metadata"]["name"], self.history.latest["metadata"]["name"]
        before = self.owner.get("status") or {}
        status: dict[str, Any] = {
            "observedGeneration": self.owner["metadata"].get("generation", 1),
            "replicas": len(self.pods),
            "readyReplicas": sum(phase(pod) == "Running" and is_ready(pod) for pod in self.pods),
            "availableReplicas": sum(
                phase(pod) == "Running" and self._is_available(pod) for pod in self.pods
            ),
            "currentReplicas": sum(self._revision(pod) == current for pod in live),
            "updatedReplicas": sum(self._revision(pod) == latest for pod in live),
            "currentRevision": current,
            "updateRevision": latest,
            "collisionCount": before.get("collisionCount") or 0,
        }
        rolling = (self.spec.get("updateStrategy") or {}).get("type", "RollingUpdate") == "RollingUpdate"
        counters = ("updatedReplicas", "readyReplicas", "replicas")
        if rolling and all(status[counter] == self.count for counter in counters):
            status.update(currentReplicas=self.count, currentRevision=latest)
        for optional in ("readyReplicas", "currentReplicas", "updatedReplicas"):
            if not status[optional]:
                del status[optional]
        if before.get("conditions"):
            status["conditions"] = before["conditions"]
        if status != before:
            self.plan.do(UpdateStatus(STATEFUL_SET, {**self.owner, "status": status}))

    def _is_available(self, pod: Object) -> bool:
        left = available_in(pod, self.wait, self.now)
        if left:
            self.plan.requeue_after(left)
        return left == 0.0

    def _revision(self, pod: Object) -> str:
        return (pod["metadata"].get("labels") or {}).get(REVISION_LABEL) or ""
