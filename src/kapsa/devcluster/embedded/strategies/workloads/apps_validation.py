"""Validation of Deployments, ReplicaSets, ReplicationControllers, StatefulSets and DaemonSets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kapsa.devcluster.embedded.kinds.labels import matches, matches_map
from kapsa.devcluster.embedded.strategies.generic import rules
from kapsa.devcluster.embedded.strategies.pods.validation import validate_template
from kapsa.schemas.field_errors import FieldError, forbidden, invalid, not_supported, required

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
        error = not_supported(path, strategy, ["Recreate", "RollingUpdate"])
        return [rules.printed(error, ("Type", strategy["type"]), ("RollingUpdate", rolling))]
    rolling = rolling or {}
    where = f"{path}.rollingUpdate"
    errors = rules.positive_int_or_percent(rolling.get("maxUnavailable"), f"{where}.maxUnavailable")
    errors += rules.positive_int_or_percent(rolling.get("maxSurge"), f"{where}.maxSurge")
    both = (rolling.get("maxUnavailable"), rolling.get("maxSurge"))
    if all(rules.int_or_percent(value) == 0 for value in both):
        detail = "may not be 0 when `maxSurge` is 0"
        errors.append(invalid(f"{where}.maxUnavailable", rolling.get("maxUnavailable"), detail))
    return errors + rules.at_most_all(rolling.get("maxUnavailable"), f"{where}.maxUnavailable")


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


def validate_stateful_set(obj: Object) -> list[FieldError]:
    """Return the errors in a StatefulSet."""
    spec = obj["spec"]
    errors: list[FieldError] = []
    policy = spec.get("podManagementPolicy")
    if policy not in ("OrderedReady", "Parallel"):
        errors.append(invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'"))
    errors += _stateful_strategy(spec["updateStrategy"])
    errors += rules.non_negative(spec.get("replicas"), "spec.replicas")
    errors += rules.non_negative(spec.get("minReadySeconds"), "spec.minReadySeconds")
    errors += rules.non_negative((spec.get("ordinals") or {}).get("start"), "spec.ordinals.start")
    if spec.get("serviceName"):
        errors += rules.dns_label(spec["serviceName"], "spec.serviceName")
    errors += _selector(spec, "statefulset")
    return errors + _template(spec, "StatefulSet", volumes=spec.get("volumeClaimTemplates") or [])


def _stateful_strategy(strategy: Object) -> list[FieldError]:
    path, kind = "spec.updateStrategy", strategy.get("type")
    rolling = strategy.get("rollingUpdate")
    if kind == "OnDelete":
        if rolling is None:
            return []
        error = invalid(f"{path}.rollingUpdate", rolling, "only allowed for updateStrategy 'RollingUpdate'")
        shown = (("Partition", rolling.get("partition")), ("MaxUnavailable", rolling.get("maxUnavailable")))
        return [rules.printed(error, *shown)]
    if kind != "RollingUpdate":
        return [invalid(path, strategy, "must be 'RollingUpdate' or 'OnDelete'")]
    return rules.non_negative((rolling or {}).get("partition"), f"{path}.rollingUpdate.partition")


def validate_daemon_set(obj: Object) -> list[FieldError]:
    """Return the errors in a DaemonSet."""
    spec = obj["spec"]
    errors = _selector(spec, "daemonset")
    errors += _template(spec, "DaemonSet")
    errors += rules.non_negative(spec.get("minReadySeconds"), "spec.minReadySeconds")
    strategy = spec["updateStrategy"]
    if strategy["type"] not in ("RollingUpdate", "OnDelete"):
        supported = ["RollingUpdate", "OnDelete"]
        errors.append(not_supported("spec.updateStrategy.type", strategy["type"], supported))
    elif strategy["type"] == "RollingUpdate":
        errors += _daemon_strategy(strategy.get("rollingUpdate") or {})
    return errors + rules.non_negative(spec.get("revisionHistoryLimit"), "spec.revisionHistoryLimit")


def _daemon_strategy(rolling: Object) -> list[FieldError]:
    path = "spec.updateStrategy.rollingUpdate"
    missing, surge = rolling.get("maxUnavailable"), rolling.get("maxSurge")
    errors = rules.positive_int_or_percent(missing, f"{path}.maxUnavailable")
    errors += rules.positive_int_or_percent(surge, f"{path}.maxSurge")
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
        return [invalid("spec.selector", selector, "invalid label selector" if kind != "StatefulSet" else "")]
    if selector != {} and not matcher(selector, labels or {}):
        detail = "`selector` does not match template `labels`"
        errors.append(invalid(f"{path}.metadata.labels", labels, detail))
    if volumes:
        claimed = [
            {
                "name": v["metadata"].get("name", ""),
                "persistentVolumeClaim": {"claimName": v["metadata"].get("name", "")},
            }
            for v in volumes
        ]
        own = {v["name"] for v in claimed}
        pod = template.get("spec") or {}
        rest = [v for v in pod.get("volumes") or () if v.get("name") not in own]
        template = {**template, "spec": {**pod, "volumes": [*claimed, *rest]}}
    errors += validate_template(template, path)
    pod = template.get("spec") or {}
    if pod.get("restartPolicy") not in (None, "", "Always"):
        errors.append(not_supported(f"{path}.spec.restartPolicy", pod["restartPolicy"], ["Always"]))
    if pod.get("activeDeadlineSeconds") is not None:
        detail = f"activeDeadlineSeconds in {kind} is not Supported"
        errors.append(forbidden(f"{path}.spec.activeDeadlineSeconds", detail))
    return errors
