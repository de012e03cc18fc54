"""Rules for Jobs and CronJobs."""

from __future__ import annotations

from typing import Any
from zoneinfo import ZoneInfo

from kapsa.devcluster.embedded.kinds import names
from kapsa.devcluster.embedded.kinds.labels import matches
from kapsa.devcluster.embedded.strategies.generic import rules
from kapsa.devcluster.embedded.strategies.generic.checks import domain_prefixed_path, given, one_of
from kapsa.devcluster.embedded.strategies.pods.validation import validate_template
from kapsa.devcluster.embedded.strategies.workloads.job_policies import (
    validate_failure_policy,
    validate_success_policy,
)
from kapsa.devcluster.embedded.strategies.workloads.schedule import parse
from kapsa.schemas.field_errors import FieldError, invalid, not_supported, required, too_long

Object = dict[str, Any]

_NUMBERS = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)
_LONGEST_CRON_JOB_NAME = 52
_LONGEST_MANAGER = 63
_MOST_INDEXES, _MOST_OF_MANY = 100_000, 10_000
_OF_MANY = f" when completions are above {_MOST_INDEXES} and used with backoff limit per index"
_MODES = one_of("NonIndexed", "Indexed")


def validate_job(obj: Object) -> list[FieldError]:
    """Return the errors in a Job."""
    spec = obj["spec"]
    errors = _generated_selector(obj)
    selector = spec.get("selector")
    if selector is None:
        errors.append(required("spec.selector"))
    else:
        errors += rules.label_selector(selector, "spec.selector")
    errors += _job_spec(spec, "spec")
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if selector is not None and not matches(selector, labels or {}):
        detail = "`selector` does not match template `labels`"
        errors.append(invalid("spec.template.metadata.labels", labels, detail))
    if spec.get("completionMode") == "Indexed" and spec.get("completions"):
        name = obj["metadata"].get("name") or ""
        last = f"{name}-{spec['completions'] - 1}"
        if names.dns1123_label(last):
            detail = f"will not able to create pod with invalid DNS label: {last}"
            errors.append(invalid("metadata.name", name, detail))
    return errors


def _generated_selector(obj: Object) -> list[FieldError]:
    """Return an error if a generated selector was changed."""
    spec, uid = obj["spec"], obj["metadata"].get("uid")
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    selector = spec.get("selector") or {}
    generated = {"batch.kubernetes.io/controller-uid": uid}
    given = {**(selector.get("matchLabels") or {})}
    given.pop("controller-uid", None)
    if spec.get("manualSelector") or labels.get("batch.kubernetes.io/controller-uid") != uid:
        return []
    if given == generated and not selector.get("matchExpressions"):
        return []
    return [invalid("spec.selector", spec.get("selector"), "`selector` not auto-generated")]


def _job_spec(spec: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for field in _NUMBERS:
        errors += rules.non_negative(spec.get(field), f"{path}.{field}")
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        errors.append(required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    errors += given(_managed_by)(spec.get("managedBy"), f"{path}.managedBy")
    errors += given(_MODES)(spec.get("completionMode"), f"{path}.completionMode")
    errors += _indexed(spec, path)
    if spec.get("podFailurePolicy") is not None:
        errors += validate_failure_policy(spec, f"{path}.podFailurePolicy")
    if spec.get("successPolicy") is not None:
        errors += validate_success_policy(spec, f"{path}.successPolicy")
    errors += _replacement(spec, path)
    template = spec.get("template") or {}
    errors += validate_template(template, f"{path}.template")
    return errors + _restart_policy(spec, template, f"{path}.template.spec.restartPolicy")


def _managed_by(name: str, path: str) -> list[FieldError]:
    long = [too_long(path, _LONGEST_MANAGER)] if len(name) > _LONGEST_MANAGER else []
    return domain_prefixed_path(name, path) + long


def _indexed(spec: Object, path: str) -> list[FieldError]:
    """Return the errors of numbers that depend on the completion mode."""
    mode, completions = spec.get("completionMode"), spec.get("completions")
    if mode in (None, "NonIndexed"):
        return [
            invalid(f"{path}.{field}", spec[field], "requires indexed completion mode")
            for field in ("backoffLimitPerIndex", "maxFailedIndexes")
            if spec.get(field) is not None
        ]
    if mode != "Indexed":
        return []
    errors: list[FieldError] = []
    if completions is None:
        errors.append(required(f"{path}.completions", "when completion mode is Indexed"))
    errors += _at_most(spec, path, "parallelism", _MOST_INDEXES, " when completion mode is Indexed")
    failed = spec.get("maxFailedIndexes")
    if failed is not None and completions is not None and failed > completions:
        detail = "must be less than or equal to completions"
        errors.append(invalid(f"{path}.maxFailedIndexes", failed, detail))
    errors += _at_most(spec, path, "maxFailedIndexes", _MOST_INDEXES)
    if (completions or 0) > _MOST_INDEXES and spec.get("backoffLimitPerIndex") is not None:
        if failed is None:
            detail = f"must be specified when completions is above {_MOST_INDEXES}"
            errors.append(required(f"{path}.maxFailedIndexes", detail))
        for field in ("parallelism", "maxFailedIndexes"):
            errors += _at_most(spec, path, field, _MOST_OF_MANY, _OF_MANY)
    return errors


def _at_most(spec: Object, path: str, field: str, limit: int, when: str = "") -> list[FieldError]:
    value = spec.get(field)
    if value is None or value <= limit:
        return []
    return [invalid(f"{path}.{field}", value, f"must be less than or equal to {limit}{when}")]


def _replacement(spec: Object, path: str) -> list[FieldError]:
    supported = ("Failed",) if spec.get("podFailurePolicy") is not None else ("Failed", "TerminatingOrFailed")
    return given(one_of(*supported))(spec.get("podReplacementPolicy"), f"{path}.podReplacementPolicy")


def _restart_policy(spec: Object, template: Object, path: str) -> list[FieldError]:
    policy = (template.get("spec") or {}).get("restartPolicy") or "Always"
    if policy == "Always":
        return [required(path, 'valid values: "OnFailure", "Never"')]
    if policy not in ("OnFailure", "Never"):
        return [not_supported(path, policy, ["OnFailure", "Never"])]
    if spec.get("podFailurePolicy") is not None and policy != "Never":
        return [invalid(path, policy, 'only "Never" is supported when podFailurePolicy is specified')]
    return []


def validate_cron_job(obj: Object) -> list[FieldError]:
    """Return the errors in a CronJob."""
    spec, name = obj["spec"], obj["metadata"].get("name") or ""
    errors: list[FieldError] = []
    if not spec.get("schedule"):
        errors.append(required("spec.schedule"))
    else:
        errors += _schedule(spec["schedule"])
    errors += rules.non_negative(spec.get("startingDeadlineSeconds"), "spec.startingDeadlineSeconds")
    errors += _time_zone(spec.get("timeZone"))
    policies = ("Allow", "Forbid", "Replace")
    if spec.get("concurrencyPolicy") not in policies:
        errors.append(not_supported("spec.concurrencyPolicy", spec.get("concurrencyPolicy"), policies))
    job = (spec.get("jobTemplate") or {}).get("spec") or {}
    errors += _job_spec(job, "spec.jobTemplate.spec")
    for field in ("successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        errors += rules.non_negative(spec.get(field), f"spec.{field}")
    if len(name) > _LONGEST_CRON_JOB_NAME:
        errors.append(
            invalid("metadata.name", name, f"must be no more than {_LONGEST_CRON_JOB_NAME} characters")
        )
    return errors


def _schedule(text: str) -> list[FieldError]:
    if "TZ" in text:
        detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        return [invalid("spec.schedule", text, detail)]
    try:
        parse(text)
    except ValueError as error:
        return [invalid("spec.schedule", text, str(error))]
    return []


def _time_zone(zone: str | None) -> list[FieldError]:
    if zone is None:
        return []
    if not zone:
        return [invalid("spec.timeZone", zone, "timeZone must be nil or non-empty string")]
    if zone.lower() == "local":
        return [
            invalid(
                "spec.timeZone",
                zone,
                "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones",
            )
        ]
    try:
        ZoneInfo(zone)
    except (ValueError, OSError, LookupError):
        return [invalid("spec.timeZone", zone, f"unknown time zone {zone}")]
    return []
