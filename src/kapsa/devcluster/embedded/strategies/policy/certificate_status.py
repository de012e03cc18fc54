"""The status of certificate signing requests: conditions, which approve or deny one, and the certificate."""

from __future__ import annotations

import base64
import re
from typing import Any

from kapsa.devcluster.embedded.strategies.generic.builtin import Object
from kapsa.schemas import go_format
from kapsa.schemas.field_errors import FieldError, duplicate, forbidden, invalid, not_supported, required

__all__ = ["keep_all_but_conditions", "keep_approval", "set_times", "validate"]

_BLOCK = re.compile(rb"-----BEGIN ([^-]+)-----")
_CONDITIONS = "status.conditions"
_CERTIFICATE = "status.certificate"
_DECISIONS = ("Approved", "Denied")
_FINAL = (*_DECISIONS, "Failed")


def keep_approval(obj: Object, old: Object) -> None:
    """Restore the conditions that approve or deny a request, unless some were added or removed."""
    conditions = _conditions(obj)
    for type_ in _DECISIONS:
        places = [index for index, each in enumerate(conditions) if each.get("type") == type_]
        before = _of_type(old, type_)
        if len(places) == len(before):
            for index, condition in zip(places, before, strict=True):
                conditions[index] = condition


def keep_all_but_conditions(obj: Object, old: Object) -> None:
    """Restore the fields that an approval must not change."""
    kept = {key: value for key, value in (old.get("status") or {}).items() if key != "conditions"}
    conditions = _conditions(obj)
    obj["status"] = {**kept, "conditions": conditions} if conditions else kept


def set_times(obj: Object, old: Object, now: str) -> None:
    """Set the times that conditions lack; a condition with the state of an earlier one has its transition time."""
    for condition in _conditions(obj):
        if not condition.get("lastUpdateTime"):
            condition["lastUpdateTime"] = now
        if not condition.get("lastTransitionTime"):
            condition["lastTransitionTime"] = _transition(condition, old) or now


def _transition(condition: Object, old: Object) -> str:
    times = (
        each.get("lastTransitionTime") or ""
        for each in _of_type(old, condition.get("type"))
        if each.get("status") == condition.get("status")
    )
    return next((time for time in times if time), "")


def validate(obj: Object, old: Object, *, approves: bool) -> list[FieldError]:
    """Return the errors in an updated status. Only the approval may add a decision, and only the status a certificate."""
    after, before = (str((each.get("status") or {}).get("certificate") or "") for each in (obj, old))
    errors = _condition_errors(obj, old)
    if after != before and (problem := _certificate_problem(after)):
        errors.append(invalid(_CERTIFICATE, "<certificate data>", problem))
    errors += _removed(obj, old)
    if not approves:
        errors += _decided(obj, old)
    if after != before and before:
        errors.append(forbidden(_CERTIFICATE, "updates may not modify existing certificate content"))
    return errors


def _condition_errors(obj: Object, old: Object) -> list[FieldError]:
    """Return the errors in the conditions; what the old ones had is tolerated."""
    errors: list[FieldError] = []
    seen: list[str] = []
    tolerated = [each.get("type") or "" for each in _conditions(old)]
    for index, condition in enumerate(_conditions(obj)):
        path, type_ = f"{_CONDITIONS}[{index}]", condition.get("type") or ""
        if not type_ and "" not in tolerated:
            errors.append(required(f"{path}.type"))
        errors += _state_errors(condition.get("status") or "", type_, f"{path}.status")
        if _excludes(type_, seen) and not set(_DECISIONS) <= set(tolerated):
            detail = "Approved and Denied conditions are mutually exclusive"
            errors.append(invalid(_CONDITIONS, type_, detail))
        if type_ in seen and len(tolerated) == len(set(tolerated)):
            errors.append(duplicate(f"{path}.type", type_))
        seen.append(type_)
    return errors


def _state_errors(state: str, type_: str, path: str) -> list[FieldError]:
    supported = ("True",) if type_ in _FINAL else ("False", "True", "Unknown")
    if not state:
        return [required(path)]
    return [] if state in supported else [not_supported(path, state, supported)]


def _excludes(type_: str, seen: list[str]) -> bool:
    """Return whether a request is both approved and denied."""
    return type_ in _DECISIONS and any(each in seen for each in _DECISIONS if each != type_)


def _removed(obj: Object, old: Object) -> list[FieldError]:
    return [
        forbidden(_CONDITIONS, f"updates may not remove a condition of type {go_format.quote(type_)}")
        for type_ in _FINAL
        if len(_of_type(obj, type_)) < len(_of_type(old, type_))
    ]


def _decided(obj: Object, old: Object) -> list[FieldError]:
    """Return an error for each decision that a status update adds."""
    return [
        forbidden(_CONDITIONS, f"updates may not add a condition of type {go_format.quote(type_)}")
        for type_ in _DECISIONS
        if len(_of_type(obj, type_)) > len(_of_type(old, type_))
    ]


def _certificate_problem(encoded: str) -> str:
    """Return why a certificate cannot be read, or ""."""
    from cryptography import x509  # few clusters ever see a request

    if not encoded:
        return ""
    pem = base64.b64decode(encoded)
    blocks = [each.decode("latin-1") for each in _BLOCK.findall(pem)]
    if not blocks:
        return "must contain at least one CERTIFICATE PEM block"
    for block in blocks:
        if block != "CERTIFICATE":
            return f"only CERTIFICATE PEM blocks are allowed, found {go_format.quote(block)}"
    try:
        x509.load_pem_x509_certificates(pem)
    except ValueError:
        return "x509: malformed certificate"
    return ""


def _of_type(request: Object, type_: str | None) -> list[Any]:
    return [each for each in _conditions(request) if each.get("type") == type_]


def _conditions(request: Object) -> list[Any]:
    return (request.get("status") or {}).get("conditions") or []
