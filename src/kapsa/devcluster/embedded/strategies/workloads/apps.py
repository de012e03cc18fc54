"""Deployments, ReplicaSets, StatefulSets, DaemonSets and ReplicationControllers."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.strategies.generic.builtin import BuiltInStrategy, Object
from kapsa.devcluster.embedded.strategies.generic.rules import non_negative
from kapsa.devcluster.embedded.strategies.pods.templates import PodTemplateStrategy, default_template
from kapsa.devcluster.embedded.strategies.workloads import apps_validation as rules
from kapsa.schemas.field_errors import FieldError, forbidden, invalid, required
from kapsa.schemas.quantities import canonical

TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"


class DeploymentStrategy(PodTemplateStrategy):
    names_pods = True
    reset_by_status = ("labels",)

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        _default(spec, replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600)
        strategy = spec["strategy"] = spec.get("strategy") or {}
        strategy["type"] = strategy.get("type") or "RollingUpdate"
        if strategy["type"] == "RollingUpdate":
            strategy["rollingUpdate"] = strategy.get("rollingUpdate") or {}
            _default(strategy["rollingUpdate"], maxUnavailable="25%", maxSurge="25%")
        default_template(obj)

    def raises_generation(self, obj: Object, old: Object) -> bool:
        # A Deployment's annotations are copied to its ReplicaSets, so a change of them is one for the controller.
        before, after = ((each["metadata"].get("annotations") or {}) for each in (old, obj))
        return before != after or super().raises_generation(obj, old)

    def validate(self, obj: Object) -> list[FieldError]:
        return rules.validate_deployment(obj)

    def immutable(self, obj: Object, old: Object) -> list[FieldError]:
        return _immutable_selector(obj, old)


class ReplicaSetStrategy(PodTemplateStrategy):
    names_pods = True

    def default(self, obj: Object) -> None:
        _default(obj.setdefault("spec", {}), replicas=1)
        default_template(obj)

    def initial_status(self, obj: Object) -> dict[str, Any]:
        return {"replicas": 0}

    def validate(self, obj: Object) -> list[FieldError]:
        return rules.validate_replica_set(obj)

    def immutable(self, obj: Object, old: Object) -> list[FieldError]:
        return _immutable_selector(obj, old)


class ReplicationControllerStrategy(PodTemplateStrategy):
    names_pods = True

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        _default(spec, replicas=1)
        labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
        if labels:
            spec["selector"] = spec.get("selector") or dict(labels)
            obj["metadata"]["labels"] = obj["metadata"].get("labels") or dict(labels)
        default_template(obj)

    def initial_status(self, obj: Object) -> dict[str, Any]:
        return {"replicas": 0}

    def validate(self, obj: Object) -> list[FieldError]:
        return rules.validate_replication_controller(obj)

    def default_propagation(self, obj: Object) -> str:
        return "orphan"


class StatefulSetStrategy(PodTemplateStrategy):
    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        spec["podManagementPolicy"] = spec.get("podManagementPolicy") or "OrderedReady"
        update = spec["updateStrategy"] = spec.get("updateStrategy") or {}
        if not update.get("type"):
            update["type"] = "RollingUpdate"
            update["rollingUpdate"] = update.get("rollingUpdate") or {}
        if update["type"] == "RollingUpdate" and update.get("rollingUpdate") is not None:
            _default(update["rollingUpdate"], partition=0)
        retention = spec["persistentVolumeClaimRetentionPolicy"] = (
            spec.get("persistentVolumeClaimRetentionPolicy") or {}
        )
        for when in ("whenDeleted", "whenScaled"):
            retention[when] = retention.get(when) or "Retain"
        _default(spec, replicas=1, revisionHistoryLimit=10)
        default_template(obj)
        for claim in spec.get("volumeClaimTemplates") or ():
            _default_claim_template(claim)

    def initial_status(self, obj: Object) -> dict[str, Any]:
        return {"replicas": 0, "availableReplicas": 0}

    def validate(self, obj: Object) -> list[FieldError]:
        return rules.validate_stateful_set(obj, is_new=False)

    def validate_create(self, obj: Object) -> list[FieldError]:
        return rules.validate_stateful_set(obj, is_new=True)

    def immutable(self, obj: Object, old: Object) -> list[FieldError]:
        mutable = {
            "replicas",
            "ordinals",
            "template",
            "updateStrategy",
            "revisionHistoryLimit",
            "persistentVolumeClaimRetentionPolicy",
            "minReadySeconds",
        }
        before = {k: v for k, v in old["spec"].items() if k not in mutable}
        after = {k: v for k, v in obj["spec"].items() if k not in mutable}
        if before == after:
            return []
        detail = (
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
            "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
        )
        return [forbidden("spec", detail)]


class DaemonSetStrategy(PodTemplateStrategy):
    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        update = spec["updateStrategy"] = spec.get("updateStrategy") or {}
        update["type"] = update.get("type") or "RollingUpdate"
        if update["type"] == "RollingUpdate":
            update["rollingUpdate"] = update.get("rollingUpdate") or {}
            _default(update["rollingUpdate"], maxUnavailable=1, maxSurge=0)
        _default(spec, revisionHistoryLimit=10)
        default_template(obj)

    def initial_status(self, obj: Object) -> dict[str, Any]:
        counters = ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")
        return dict.fromkeys(counters, 0)

    def reset_for_create(self, obj: Object) -> None:
        super().reset_for_create(obj)
        annotations = obj["metadata"].get("annotations") or {}
        annotations.setdefault(TEMPLATE_GENERATION, "1")
        obj["metadata"]["annotations"] = annotations

    def reset_for_update(self, obj: Object, old: Object) -> None:
        super().reset_for_update(obj, old)
        before = (old["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION, "0")
        changed = obj["spec"].get("template") != old["spec"].get("template")
        annotations = obj["metadata"].get("annotations") or {}
        annotations[TEMPLATE_GENERATION] = str(int(before) + 1) if changed else before
        obj["metadata"]["annotations"] = annotations

    def _changes_template(self, obj: Object, old: Object) -> bool:
        counters = [each["metadata"]["annotations"][TEMPLATE_GENERATION] for each in (obj, old)]
        return bool(counters[0] != counters[1])

    def validate(self, obj: Object) -> list[FieldError]:
        return rules.validate_daemon_set(obj)

    def immutable(self, obj: Object, old: Object) -> list[FieldError]:
        return _immutable_selector(obj, old)


class ControllerRevisionStrategy(BuiltInStrategy):
    def validate(self, obj: Object) -> list[FieldError]:
        return non_negative(obj.get("revision"), "revision")

    def validate_create(self, obj: Object) -> list[FieldError]:
        data = obj.get("data")
        if isinstance(data, dict):
            return self.validate(obj)
        detail = "data is mandatory" if data is None else "data must be a valid JSON object"
        return [*self.validate(obj), required("data", detail)]

    def immutable(self, obj: Object, old: Object) -> list[FieldError]:
        same = obj.get("data") == old.get("data")
        return [] if same else [invalid("data", obj.get("data"), "field is immutable")]


def _immutable_selector(obj: Object, old: Object) -> list[FieldError]:
    after, before = obj["spec"].get("selector"), old["spec"].get("selector")
    return [] if after == before else [invalid("spec.selector", after, "field is immutable")]


def _default_claim_template(claim: Object) -> None:
    claim.setdefault("apiVersion", "v1")
    claim.setdefault("kind", "PersistentVolumeClaim")
    spec = claim.setdefault("spec", {})
    spec["volumeMode"] = spec.get("volumeMode") or "Filesystem"
    for amounts in (spec.get("resources") or {}).values():
        for name in amounts or ():
            amounts[name] = canonical(amounts[name])
    claim["status"] = {"phase": "Pending"}


def _default(target: Object, **values: Any) -> None:
    for field, value in values.items():
        if target.get(field) is None:
            target[field] = value
