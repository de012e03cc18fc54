"""Jobs and CronJobs."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.strategies.generic.builtin import Object
from kapsa.devcluster.embedded.strategies.pods.templates import PodTemplateStrategy, default_template
from kapsa.devcluster.embedded.strategies.workloads import batch_validation as rules
from kapsa.schemas.field_errors import FieldError, invalid

CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
JOB_NAME = "batch.kubernetes.io/job-name"
_OLD_CONTROLLER_UID, _OLD_JOB_NAME = "controller-uid", "job-name"
_UNLIMITED = 2**31 - 1


def default_job_spec(spec: Object) -> None:
    """Set the defaults of a Job's spec."""
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = spec["parallelism"] = 1
    if spec.get("parallelism") is None:
        spec["parallelism"] = 1
    if spec.get("backoffLimit") is None:
        spec["backoffLimit"] = 6 if spec.get("backoffLimitPerIndex") is None else _UNLIMITED
    if spec.get("completionMode") is None:
        spec["completionMode"] = "NonIndexed"
    if spec.get("suspend") is None:
        spec["suspend"] = False
    if spec.get("podReplacementPolicy") is None:
        spec["podReplacementPolicy"] = "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed"
    if spec.get("manualSelector") is None:
        spec["manualSelector"] = False
    for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ():
        for pattern in rule.get("onPodConditions") or ():
            pattern["status"] = pattern.get("status") or "True"


class JobStrategy(PodTemplateStrategy):
    names_pods = True

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        default_job_spec(spec)
        labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
        if labels and not obj["metadata"].get("labels"):
            obj["metadata"]["labels"] = dict(labels)
        default_template(obj)

    def prepare_for_create(self, obj: Object) -> None:
        if not obj["spec"].get("manualSelector"):
            _generate_selector(obj)
        # A Job without labels gets those of its template, including the generated ones.
        super().prepare_for_create(obj)

    def validate(self, obj: Object) -> list[FieldError]:
        return rules.validate_job(obj)

    def immutable(self, obj: Object, old: Object) -> list[FieldError]:
        errors = []
        for field in (
            "completions",
            "selector",
            "template",
            "completionMode",
            "podFailurePolicy",
            "successPolicy",
            "backoffLimitPerIndex",
            "managedBy",
        ):
            after, before = obj["spec"].get(field), old["spec"].get(field)
            if after != before and not self._may_change(field, obj, old):
                errors.append(invalid(f"spec.{field}", after, "field is immutable"))
        return errors

    def _may_change(self, field: str, obj: Object, old: Object) -> bool:
        if field == "completions":
            # An elastic Indexed Job: completions and parallelism change together.
            indexed = obj["spec"].get("completionMode") == "Indexed"
            return bool(indexed and obj["spec"]["completions"] == obj["spec"]["parallelism"])
        if field != "template":
            return False
        suspended = old["spec"].get("suspend") and not (old.get("status") or {}).get("startTime")
        return bool(suspended) and _without_scheduling(obj) == _without_scheduling(old)

    def default_propagation(self, obj: Object) -> str:
        return "background"


def _without_scheduling(obj: Object) -> Any:
    template = obj["spec"]["template"]
    scheduling = ("affinity", "nodeSelector", "tolerations", "schedulingGates")
    metadata = {
        k: v for k, v in (template.get("metadata") or {}).items() if k not in ("labels", "annotations")
    }
    return metadata, {k: v for k, v in template["spec"].items() if k not in scheduling}


def _generate_selector(obj: Object) -> None:
    uid, name = obj["metadata"]["uid"], obj["metadata"].get("name") or ""
    template = obj["spec"].setdefault("template", {})
    metadata = template["metadata"] = template.get("metadata") or {}
    labels = metadata["labels"] = dict(metadata.get("labels") or {})
    labels.update({CONTROLLER_UID: uid, _OLD_CONTROLLER_UID: uid, JOB_NAME: name, _OLD_JOB_NAME: name})
    selector = obj["spec"].get("selector") or {}
    obj["spec"]["selector"] = {
        **selector,
        "matchLabels": {**(selector.get("matchLabels") or {}), CONTROLLER_UID: uid},
    }


class CronJobStrategy(PodTemplateStrategy):
    template = ("spec", "jobTemplate", "spec", "template")
    names_pods = True

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        spec["concurrencyPolicy"] = spec.get("concurrencyPolicy") or "Allow"
        for field, value in (
            ("suspend", False),
            ("successfulJobsHistoryLimit", 3),
            ("failedJobsHistoryLimit", 1),
        ):
            if spec.get(field) is None:
                spec[field] = value
        template = spec.get("jobTemplate")
        if isinstance(template, dict):
            template.setdefault("metadata", {})
            default_template(template)

    def validate(self, obj: Object) -> list[FieldError]:
        return rules.validate_cron_job(obj)
