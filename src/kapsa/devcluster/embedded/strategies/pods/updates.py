"""Updates of pods: the few fields of a spec that may change, and how."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from kapsa.devcluster.embedded.strategies.pods.defaults import containers
from kapsa.devcluster.embedded.strategies.pods.validation import validate_images
from kapsa.schemas.field_errors import FieldError, forbidden, invalid, required

__all__ = ["validate_spec_update"]

Object = dict[str, Any]

_MUTABLE = ("activeDeadlineSeconds", "tolerations", "schedulingGates")
_GROUPS = ("containers", "initContainers")
_LARGEST_INT = 2**31 - 1
_MUTABLE_DETAIL = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def validate_spec_update(spec: Object, old: Object) -> list[FieldError]:
    """Return the errors of an update that changes more of a spec than a pod allows."""
    for group in _GROUPS:
        if len(spec.get(group) or ()) != len(old.get(group) or ()):
            return [forbidden(f"spec.{group}", "pod updates may not add or remove containers")]
    errors = [*_images(spec), *_deadline(spec, old), *_tolerations(spec, old), *_gates(spec, old)]
    is_gated = bool(old.get("schedulingGates"))
    if is_gated:
        errors += _node_selector(spec, old)
    if not errors and _with_old_mutable_fields(spec, old, is_gated=is_gated) != old:
        errors.append(forbidden("spec", _MUTABLE_DETAIL))
    return errors


def _images(spec: Object) -> list[FieldError]:
    without = [
        required(f"spec.{group}[{index}].image")
        for group in _GROUPS
        for index, container in enumerate(spec.get(group) or ())
        if not container.get("image")
    ]
    return without + validate_images(spec, "spec")


def _deadline(spec: Object, old: Object) -> Iterator[FieldError]:
    path, after, before = "spec.activeDeadlineSeconds", *(s.get("activeDeadlineSeconds") for s in (spec, old))
    if after is not None and not 0 <= after <= _LARGEST_INT:
        yield invalid(path, after, f"must be between 0 and {_LARGEST_INT}, inclusive")
    elif before is not None and after is None:
        yield invalid(path, None, "must not update from a positive integer to nil value")
    elif before is not None and after > before:
        yield invalid(path, after, "must be less than or equal to previous value")


def _tolerations(spec: Object, old: Object) -> Iterator[FieldError]:
    before, after = (
        [{k: v for k, v in each.items() if k != "tolerationSeconds"} for each in s.get("tolerations") or ()]
        for s in (old, spec)
    )
    if any(each not in after for each in before):
        detail = "existing toleration can not be modified except its tolerationSeconds"
        yield forbidden("spec.tolerations", detail)


def _gates(spec: Object, old: Object) -> Iterator[FieldError]:
    before = {each["name"] for each in old.get("schedulingGates") or ()}
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        if gate["name"] not in before:
            detail = f"only deletion is allowed, but found new scheduling gate '{gate['name']}'"
            yield forbidden(f"spec.schedulingGates[{index}].name", detail)


def _node_selector(spec: Object, old: Object) -> Iterator[FieldError]:
    before, after = old.get("nodeSelector") or {}, spec.get("nodeSelector") or {}
    if not before.items() <= after.items():
        detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        yield invalid("spec.nodeSelector", after, detail)


def _with_old_mutable_fields(spec: Object, old: Object, *, is_gated: bool) -> Object:
    """Return the spec with the old values of all fields that may change."""
    same = copy.deepcopy(spec)
    for field in (*_MUTABLE, "nodeSelector") if is_gated else _MUTABLE:
        same.pop(field, None)
        if field in old:
            same[field] = old[field]
    for container, previous in zip(containers(same), containers(old), strict=False):
        container["image"] = previous.get("image")
    return same
