"""Validation of the policies of Jobs: when a pod's failure ends the Job, and which indexes are a success."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.strategies.generic.checks import LABEL_KEY, each
from kapsa.schemas.field_errors import (
    OMITTED,
    FieldError,
    duplicate,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from kapsa.schemas.go_format import GoStruct, quote

__all__ = ["validate_failure_policy", "validate_success_policy"]

Object = dict[str, Any]

_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_STATUSES = ("False", "True", "Unknown")
_MOST_RULES, _MOST_CODES, _LONGEST_INDEXES = 20, 255, 64 * 1024


def validate_failure_policy(spec: Object, path: str) -> list[FieldError]:
    """Return the errors in the pod failure policy of a Job's spec."""
    rules = spec["podFailurePolicy"].get("rules") or []
    errors = [too_many(f"{path}.rules", len(rules), _MOST_RULES)] if len(rules) > _MOST_RULES else []
    pod = (spec.get("template") or {}).get("spec") or {}
    containers = [*(pod.get("containers") or ()), *(pod.get("initContainers") or ())]
    names = {container.get("name") or "" for container in containers}
    for index, rule in enumerate(rules):
        where = f"{path}.rules[{index}]"
        errors += _one_of_these(rule.get("action"), f"{where}.action", _ACTIONS)
        if rule.get("action") == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
            detail = "requires the backoffLimitPerIndex to be set"
            errors.append(invalid(f"{where}.action", "FailIndex", detail))
        errors += _reasons(rule, where, names)
    return errors


def _reasons(rule: Object, path: str, containers: set[str]) -> list[FieldError]:
    codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions") or []
    errors: list[FieldError] = []
    if codes is not None:
        errors += _exit_codes(codes, f"{path}.onExitCodes", containers)
    if len(conditions) > _MOST_RULES:
        errors.append(too_many(f"{path}.onPodConditions", len(conditions), _MOST_RULES))
    errors += each(_condition)(conditions, f"{path}.onPodConditions")
    if codes is not None and conditions:
        detail = "specifying both OnExitCodes and OnPodConditions is not supported"
        errors.append(invalid(path, OMITTED, detail))
    elif codes is None and not conditions:
        detail = "specifying one of OnExitCodes and OnPodConditions is required"
        errors.append(invalid(path, OMITTED, detail))
    return errors


def _one_of_these(value: str | None, path: str, supported: tuple[str, ...]) -> list[FieldError]:
    if not value:
        return [required(path, f"valid values: [{' '.join(map(quote, supported))}]")]
    return [] if value in supported else [not_supported(path, value, supported)]


def _condition(pattern: Object, path: str) -> list[FieldError]:
    errors = LABEL_KEY(pattern.get("type"), f"{path}.type")
    return errors + _one_of_these(pattern.get("status"), f"{path}.status", _STATUSES)


def _exit_codes(codes: Object, path: str, containers: set[str]) -> list[FieldError]:
    errors = _one_of_these(codes.get("operator"), f"{path}.operator", ("In", "NotIn"))
    name = codes.get("containerName")
    if name is not None and name not in containers:
        detail = "must be one of the container or initContainer names in the pod template"
        errors.append(invalid(f"{path}.containerName", name, detail))
    values, where = codes.get("values") or [], f"{path}.values"
    if not values:
        errors.append(invalid(where, codes.get("values"), "at least one value is required"))
    elif len(values) > _MOST_CODES:
        errors.append(too_many(where, len(values), _MOST_CODES))
    for index, value in enumerate(values):
        if value == 0 and codes.get("operator") == "In":
            errors.append(invalid(f"{where}[{index}]", value, "must not be 0 for the In operator"))
        if value in values[:index]:
            errors.append(duplicate(f"{where}[{index}]", value))
    if values != sorted(values):
        errors.append(invalid(where, values, "must be ordered"))
    return errors


def validate_success_policy(spec: Object, path: str) -> list[FieldError]:
    """Return the errors in the success policy of a Job's spec."""
    rules = spec["successPolicy"].get("rules") or []
    if spec.get("completionMode") != "Indexed":
        shown = [
            GoStruct(SucceededIndexes=rule.get("succeededIndexes"), SucceededCount=rule.get("succeededCount"))
            for rule in rules
        ]
        return [invalid(path, GoStruct(Rules=shown or None), "requires indexed completion mode")]
    errors: list[FieldError] = []
    if not rules:
        detail = "at least one rules must be specified when the successPolicy is specified"
        errors.append(required(f"{path}.rules", detail))
    if len(rules) > _MOST_RULES:
        errors.append(too_many(f"{path}.rules", len(rules), _MOST_RULES))
    for index, rule in enumerate(rules):
        errors += _success(rule, f"{path}.rules[{index}]", spec.get("completions") or 0)
    return errors


def _success(rule: Object, path: str, completions: int) -> list[FieldError]:
    count, indexes = rule.get("succeededCount"), rule.get("succeededIndexes")
    if count is None and indexes is None:
        detail = "at least one of succeededCount or succeededIndexes must be specified"
        return [required(path, detail)]
    errors: list[FieldError] = []
    total = 0
    if indexes is not None:
        where = f"{path}.succeededIndexes"
        if len(indexes) > _LONGEST_INDEXES:
            return [too_long(where, _LONGEST_INDEXES)]
        try:
            total = _count_indexes(indexes, completions)
        except ValueError as error:
            errors.append(invalid(where, indexes, f"error parsing succeededIndexes: {error}"))
    return errors + (
        _succeeded(count, path, completions, None if indexes is None else total) if count else []
    )


def _succeeded(count: int, path: str, completions: int, total: int | None) -> list[FieldError]:
    where, limit = f"{path}.succeededCount", "must be less than or equal to"
    errors: list[FieldError] = []
    if count < 0:
        errors.append(invalid(where, count, "must be greater than or equal to 0"))
    if count > completions:
        detail = f"{limit} {completions} (the number of specified completions)"
        errors.append(invalid(where, count, detail))
    if total is not None and count > total:
        detail = f"{limit} {total} (the number of indexes in the specified succeededIndexes field)"
        errors.append(invalid(where, count, detail))
    return errors


def _count_indexes(text: str, completions: int) -> int:
    """Return how many indexes a text such as `0,2-4` has. Raises ValueError with kube-apiserver's message."""
    total, last = 0, -1
    for interval in text.split(",") if text else ():
        parts = interval.split("-")
        if len(parts) > 2:
            raise ValueError(
                f"the fragment {quote(interval)} violates the requirement that an index interval can have at most "
                "two parts separated by '-'"
            )
        ends = [_index(part, completions) for part in parts]
        if len(ends) == 2 and ends[0] >= ends[1]:
            raise ValueError(f"non-increasing order, previous: {ends[0]}, current: {ends[1]}")
        if last >= ends[0]:
            raise ValueError(f"non-increasing order, previous: {last}, current: {ends[0]}")
        total += ends[-1] - ends[0] + 1
        last = ends[-1]
    return total


def _index(text: str, completions: int) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"cannot convert string to integer for index: {quote(text)}")
    if int(text) >= completions:
        raise ValueError(f"too large index: {quote(text)}")
    return int(text)
