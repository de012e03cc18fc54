"""Events of the core group and of events.k8s.io."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.kinds import names
from kapsa.devcluster.embedded.strategies.generic.builtin import BuiltInStrategy, Object
from kapsa.schemas.field_errors import FieldError, invalid, required
from kapsa.schemas.go_format import GoStruct

_LONGEST_LABEL = 128
_LONGEST_NOTE = 1024
_FIXED = (
    ("involvedObject", "regarding"),
    ("reason", "reason"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reason", "reason"),
    ("type", "type"),
    ("eventTime", "eventTime"),
    ("action", "action"),
    ("related", "related"),
    ("reportingController", "reportingController"),
    ("reportingInstance", "reportingInstance"),
)
"""Path in errors, and field, of what an update cannot change. The real server checks the reason twice."""
_REFERENCE = {
    "kind": "Kind",
    "namespace": "Namespace",
    "name": "Name",
    "uid": "UID",
    "apiVersion": "APIVersion",
    "resourceVersion": "ResourceVersion",
    "fieldPath": "FieldPath",
}
_STRUCTS: dict[str, tuple[dict[str, str], bool]] = {
    "involvedObject": (_REFERENCE, False),
    "related": (_REFERENCE, True),
    "source": ({"component": "Component", "host": "Host"}, False),
}
"""Fields in Go of the structs in `_FIXED`, and whether they are pointers."""
_POINTERS = ("eventTime", "firstTimestamp", "lastTimestamp")


class EventStrategy(BuiltInStrategy):
    """Strategy of Events: one kind with two sets of field names.

    Errors name the fields of the core group, except for the reporting controller, as in kube-apiserver.
    """

    @property
    def _is_core(self) -> bool:
        return not self.info.group

    def _get(self, obj: Object, core: str, new: str) -> Any:
        return obj.get(core if self._is_core else new)

    def validate(self, obj: Object) -> list[FieldError]:
        involved = self._get(obj, "involvedObject", "regarding") or {}
        namespace, of = obj["metadata"].get("namespace") or "", involved.get("namespace") or ""
        mismatch = invalid("involvedObject.namespace", of, "does not match event.namespace")
        if not obj.get("eventTime"):
            fits = namespace in ("", "default") if not of else namespace == of
            return [] if fits else [mismatch]
        errors = [mismatch] if not of and namespace not in ("default", "kube-system") else []
        return errors + self._new_style(obj)

    def _new_style(self, obj: Object) -> list[FieldError]:
        """Return the errors in an event that has an eventTime."""
        errors: list[FieldError] = []
        field = "reportingComponent" if self._is_core else "reportingController"
        reporter = obj.get(field) or ""
        if not reporter:
            errors.append(required(field))
        errors += [invalid(field, reporter, problem) for problem in names.label_key(reporter)]
        for name in ("reportingInstance", "action", "reason"):
            text = obj.get(name) or ""
            if not text:
                errors.append(required(name))
            if len(text) > _LONGEST_LABEL:
                errors.append(invalid(name, "", f"can have at most {_LONGEST_LABEL} characters"))
        if len(self._get(obj, "message", "note") or "") > _LONGEST_NOTE:
            errors.append(invalid("message", "", f"can have at most {_LONGEST_NOTE} characters"))
        return errors

    def validate_create(self, obj: Object) -> list[FieldError]:
        errors = self.validate(obj)
        if self._is_core:
            return errors
        errors += self._series(obj)
        if not obj.get("eventTime"):
            errors.append(required("eventTime"))
        kind = obj.get("type") or ""
        if kind not in ("Normal", "Warning"):
            errors.append(invalid("type", "", f"has invalid value: {kind}"))
        for field, name in (
            ("deprecatedFirstTimestamp", "firstTimestamp"),
            ("deprecatedLastTimestamp", "lastTimestamp"),
            ("deprecatedCount", "count"),
            ("deprecatedSource", "source"),
        ):
            if obj.get(field):
                errors.append(invalid(name, "", "needs to be unset"))
        return errors

    def immutable(self, obj: Object, old: Object) -> list[FieldError]:
        """Return the errors for changes to an event of events.k8s.io, whose series alone may change."""
        if self._is_core:
            return []
        return self._series(obj) + [
            invalid(path, _shown(path, obj.get(field)), "field is immutable")
            for path, field in _FIXED
            if (obj.get(field) or None) != (old.get(field) or None)
        ]

    def _series(self, obj: Object) -> list[FieldError]:
        series = obj.get("series")
        errors: list[FieldError] = []
        if series is not None:
            if (series.get("count") or 0) < 2:
                errors.append(invalid("series.count", "", "should be at least 2"))
            if not series.get("lastObservedTime"):
                errors.append(required("series.lastObservedTime"))
        return errors


def _shown(path: str, value: Any) -> Any:
    """Return the value of a field as Go prints it."""
    if path in _STRUCTS:
        names_of_fields, optional = _STRUCTS[path]
        if value is None and optional:
            return None
        return GoStruct({go: (value or {}).get(name, "") for name, go in names_of_fields.items()})
    if value is None and path not in _POINTERS:
        return 0 if path == "count" else ""
    return value
