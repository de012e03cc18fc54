"""Validation of Deployments, ReplicaSets, ReplicationControllers, StatefulSets and DaemonSets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kapsa.devcluster.embedded.kinds.labels import matches, matches_map
from kapsa.devcluster.embedded.strategies.generic import rules
from kapsa.devcluster.embedded.strategies.generic.checks import fields, given, one_of
from kapsa.devcluster.embedded.strategies.generic.claims import validate_claim_spec
from kapsa.devcluster.embedded.strategies.pods.validation import validate_template, validate_template_metadata
from kapsa.schemas.field_errors import FieldError, forbidden, invalid, not_supported, required
from kapsa.schemas.go_format import GoStruct

Object = dict[str, Any]


def validate_deployment(obj: Object) -> list[FieldError]:
    """Return the errors in a Deployment."""
    spec = obj["spec"]
    errors = rules.non_negative(spec.get("replicas"), "spec.replicas")
    errors += _selector(spec, "deployment")
    errors += _template(spec, "ReplicaSet")
    errors += _deployment_strategy(spec["strategy"])
    errors += rules.non_negative(spec.get("minReadySeconds"), "spec.minReadySeconds")
    errors += rules.non_negative(spec.get("revisionHistoryLimit"), "spec.revisionHistoryLimit")
    deadline = spec.get("progressDeadlineSeconds")
    errors += rules.non_negative(deadline, "spec.progressDeadlineSeconds")
    if deadline is not None and deadline <= (spec.get("minReadySeconds") or 0):
        errors.append(
            invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds")
        )
    return errors


def _deployment_strategy(strategy: Object) -> list[FieldError]:
    path, rolling = "spec.strategy", strategy.get("rollingUpdate")
    if strategy["type"] == "Recreate":
        if rolling is None:
            return []
        return [forbidden(f"{path}.rollingUpdate", "may not be specified when strategy `type` is 'Recreate'")]
    if strategy["type"] != "RollingUpdate":
        return [
            not_supported(path, _shown(strategy, "MaxUnavailable", "MaxSurge"), ["Recreate", "RollingUpdate"])
        ]
    rolling = rolling or {}
    where = f"{path}.rollingUpdate"
    errors = rules.positive_int_or_percent(rolling.get("maxUnavailable"), f"{where}.maxUnavailable")
    errors += rules.positive_int_or_percent(rolling.get("maxSurge"), f"{where}.maxSurge")
    both = (rolling.get("maxUnavailable"), rolling.get("maxSurge"))
    if all(rules.int_or_percent(value) == 0 for value in both):
        detail = "may not be 0 when `maxSurge` is 0"
        errors.append(invalid(f"{where}.maxUnavailable", rolling.get("maxUnavailable"), detail))
    return errors + rules.at_most_all(rolling.get("maxUnavailable"), f"{where}.maxUnavailable")


def _shown(strategy: Object, *names: str) -> GoStruct:
    """Return a strategy as Go prints it, with these fields of its rolling update."""
    rolling = strategy.get("rollingUpdate")
    parts = {name: (rolling or {}).get(name[0].lower() + name[1:]) for name in names}
    return GoStruct(Type=strategy["type"], RollingUpdate=None if rolling is None else GoStruct(parts))


def validate_replica_set(obj: Object) -> list[FieldError]:
    """Return the errors in a ReplicaSet."""
    spec = obj["spec"]
    errors = rules.non_negative(spec.get("replicas"), "spec.replicas")
    errors += rules.non_negative(spec.get("minReadySeconds"), "spec.minReadySeconds")
    errors += _selector(spec, "deployment")
    return errors + _template(spec, "ReplicaSet")


def validate_replication_controller(obj: Object) -> list[FieldError]:
    """Return the errors in a ReplicationController."""
    spec = obj["spec"]
    errors = rules.non_negative(spec.get("minReadySeconds"), "spec.minReadySeconds")
    if not spec.get("selector"):
        errors.append(required("spec.selector"))
    errors += rules.non_negative(spec.get("replicas"), "spec.replicas")
    if spec.get("template") is None:
        return [*errors, required("spec.template")]
    return errors + _template(spec, "ReplicationController", matcher=matches_map)


_RETENTION_PATH = "spec.persistentVolumeClaimRetentionPolicy"
_RETENTION = given(fields(whenDeleted=one_of("Retain", "Delete"), whenScaled=one_of("Retain", "Delete")))


def validate_stateful_set(obj: Object, *, is_new: bool) -> list[FieldError]:
    """Return the errors in a StatefulSet. What an update cannot change is checked only in a new one."""
    spec = obj["spec"]
    errors: list[FieldError] = []
    policy = spec.get("podManagementPolicy")
    if policy not in ("OrderedReady", "Parallel"):
        errors.append(invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'"))
    errors += _stateful_strategy(spec["updateStrategy"])
    errors += _RETENTION(spec.get("persistentVolumeClaimRetentionPolicy"), _RETENTION_PATH)
    if is_new:
        for index, claim in enumerate(spec.get("volumeClaimTemplates") or ()):
            errors += validate_claim_spec(claim.get("spec") or {}, f"spec.volumeClaimTemplates[{index}].spec")
    errors += rules.non_negative(spec.get("replicas"), "spec.replicas")
    errors += rules.non_negative(spec.get("minReadySeconds"), "spec.minReadySeconds")
    errors += rules.non_negative((spec.get("ordinals") or {}).get("start"), "spec.ordinals.start")
    if spec.get("serviceName") and is_new:
        errors += rules.dns_label(spec["serviceName"], "spec.serviceName")
    errors += _selector(spec, "statefulset")
    return errors + _template(spec, "StatefulSet", volumes=spec.get("volumeClaimTemplates") or [])


def _stateful_strategy(strategy: Object) -> list[FieldError]:
    path, kind = "spec.updateStrategy", strategy.get("type")
    rolling = strategy.get("rollingUpdate")
    if kind == "OnDelete":
        if rolling is None:
            return []
        detail = "only allowed for updateStrategy 'RollingUpdate'"
        shown = _shown(strategy, "Partition", "MaxUnavailable")["RollingUpdate"]
        return [invalid(f"{path}.rollingUpdate", shown, detail)]
    if kind != "RollingUpdate":
        whole = _shown(strategy, "Partition", "MaxUnavailable")
        return [invalid(path, whole, "must be 'RollingUpdate' or 'OnDelete'")]
    where, missing = f"{path}.rollingUpdate", (rolling or {}).get("maxUnavailable")
    errors = rules.non_negative((rolling or {}).get("partition"), f"{where}.partition")
    if missing is not None:
        errors += rules.positive_int_or_percent(missing, f"{where}.maxUnavailable")
        if not rules.int_or_percent(missing):
            errors.append(invalid(f"{where}.maxUnavailable", missing, "cannot be 0"))
        errors += rules.at_most_all(missing, f"{where}.maxUnavailable")
    return errors


def validate_daemon_set(obj: Object) -> list[FieldError]:
    """Return the errors in a DaemonSet."""
    spec = obj["spec"]
    selector = spec.get("selector")
    errors = [] if selector is None else _selector(spec, "daemonset")
    errors += _template(spec, "DaemonSet")
    errors += rules.non_negative(spec.get("minReadySeconds"), "spec.minReadySeconds")
    strategy = spec["updateStrategy"]
    if strategy["type"] not in ("RollingUpdate", "OnDelete"):
        shown = _shown(strategy, "MaxUnavailable", "MaxSurge")
        errors.append(not_supported("spec.updateStrategy", shown, ["RollingUpdate", "OnDelete"]))
    elif strategy["type"] == "RollingUpdate":
        errors += _daemon_strategy(strategy.get("rollingUpdate") or {})
    return errors + rules.non_negative(spec.get("revisionHistoryLimit"), "spec.revisionHistoryLimit")


def _daemon_strategy(rolling: Object) -> list[FieldError]:
    path = "spec.updateStrategy.rollingUpdate"
    missing, surge = rolling.get("maxUnavailable"), rolling.get("maxSurge")
    errors = rules.positive_int_or_percent(missing, f"{path}.maxUnavailable")
    errors += rules.positive_int_or_percent(surge, f"{path}.maxSurge")
    errors += rules.at_most_all(missing, f"{path}.maxUnavailable")
    errors += rules.at_most_all(surge, f"{path}.maxSurge")
    if rules.int_or_percent(missing) and rules.int_or_percent(surge):
        errors.append(invalid(f"{path}.maxSurge", surge, "may not be set when maxUnavailable is non-zero"))
    elif not rules.int_or_percent(missing) and not rules.int_or_percent(surge):
        errors.append(required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0"))
    return errors


def _selector(spec: Object, kind: str) -> list[FieldError]:
    selector = spec.get("selector")
    if selector is None:
        return [required("spec.selector")]
    errors = rules.label_selector(selector, "spec.selector")
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        errors.append(invalid("spec.selector", selector, f"empty selector is invalid for {kind}"))
    return errors


def _template(
    spec: Object,
    kind: str,
    *,
    matcher: Callable[[Any, dict[str, str]], bool] = matches,
    volumes: list[Object] | None = None,
) -> list[FieldError]:
    template, path = spec.get("template") or {}, "spec.template"
    errors: list[FieldError] = []
    labels = (template.get("metadata") or {}).get("labels")
    selector = spec.get("selector")
    if matcher is matches and selector is not None and rules.label_selector(selector, ""):
        if kind != "DaemonSet":
            detail = "invalid label selector" if kind != "StatefulSet" else ""
            return [invalid("spec.selector", selector, detail)]
    elif selector != {} and not matcher(selector, labels or {}):
        detail = "`selector` does not match template `labels`"
        errors.append(invalid(f"{path}.metadata.labels", labels, detail))
    if volumes:
        # Of two claims with one name, the last counts.
        own = {claim["metadata"].get("name") or "" for claim in volumes}
        claimed = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in sorted(own)]
        pod = template.get("spec") or {}
        rest = [v for v in pod.get("volumes") or () if v.get("name") not in own]
        template = {**template, "spec": {**pod, "volumes": [*claimed, *rest]}}
    errors += validate_template(template, path)
    if kind == "StatefulSet":
        # The real server checks the metadata of this kind's template twice.
        errors += validate_template_metadata(template, path)
    pod = template.get("spec") or {}
    if pod.get("restartPolicy") not in (None, "", "Always"):
        errors.append(not_supported(f"{path}.spec.restartPolicy", pod["restartPolicy"], ["Always"]))
    if pod.get("activeDeadlineSeconds") is not None:
        detail = f"activeDeadlineSeconds in {kind} is not Supported"
        errors.append(forbidden(f"{path}.spec.activeDeadlineSeconds", detail))
    return errors
