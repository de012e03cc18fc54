"""The last-applied annotation, by which kubectl migrates from client-side to server-side apply."""

from __future__ import annotations

from typing import Any

import msgspec

from kapsa.devcluster.embedded.apply.claims import claimed
from kapsa.devcluster.embedded.apply.comparison import compare
from kapsa.devcluster.embedded.apply.fieldset import Fields, difference, union
from kapsa.devcluster.embedded.apply.shape import Shape, TypedError
from kapsa.devcluster.embedded.apply.typecheck import check
from kapsa.schemas.go_format import marshal

__all__ = ["LAST_APPLIED", "allowed_fields", "with_last_applied"]

Object = dict[str, Any]

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_ANNOTATIONS_LIMIT = 256 * 1024


def allowed_fields(live: Object, api_version: str, shape: Shape) -> Fields | None:
    """Return the fields of the last-applied annotation that are unchanged in the live object."""
    text = ((live.get("metadata") or {}).get("annotations") or {}).get(LAST_APPLIED)
    if not text:
        return None
    try:
        config = msgspec.json.decode(text)
        if not isinstance(config, dict) or config.get("apiVersion") != api_version:
            return None
        check(config, shape)
        comparison = compare(config, live, shape, skip=frozenset())
        fields = claimed(config, shape)
    except (msgspec.DecodeError, TypedError):
        return None
    return difference(fields, union(comparison.changed, comparison.removed))


def with_last_applied(obj: Object, applied: Object) -> Object:
    """Update the annotation of an object that had client-side apply before, so that it can migrate back."""
    metadata = obj.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    if not annotations.get(LAST_APPLIED):
        return obj
    config = applied
    own = (applied.get("metadata") or {}).get("annotations")
    if own and LAST_APPLIED in own:
        rest = {name: value for name, value in own.items() if name != LAST_APPLIED}
        config = {**applied, "metadata": {**applied["metadata"], "annotations": rest}}
    annotations = {**annotations, LAST_APPLIED: marshal(config) + "\n"}
    if (
        sum(len(name.encode()) + len(value.encode()) for name, value in annotations.items())
        > _ANNOTATIONS_LIMIT
    ):
        del annotations[LAST_APPLIED]
    return {**obj, "metadata": {**metadata, "annotations": annotations}}
