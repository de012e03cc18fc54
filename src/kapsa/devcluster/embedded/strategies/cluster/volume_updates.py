"""Rules for updates of PersistentVolumes and their claims: what stays as it was created."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kapsa.devcluster.embedded.strategies.generic.node_selectors import RENAMED_LABELS
from kapsa.schemas.field_errors import FieldError, forbidden, invalid
from kapsa.schemas.go_format import GoStruct
from kapsa.schemas.quantities import parse

__all__ = ["claim_changes", "volume_changes"]

Object = dict[str, Any]

_CLAIM = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
_VOLUME = "spec.persistentvolumesource is immutable after creation"
_AFFINITY = "field is immutable, except for updating from beta label to GA"
_OUTSIDE_THE_SOURCE = frozenset(
    {
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeMode",
    }
)
"""Fields of a volume's spec that are not a kind of storage."""


def claim_changes(obj: Object, old: Object) -> list[FieldError]:
    """Return the errors for fixed fields of a claim that an update changes."""
    after, before = dict(obj["spec"]), dict(old["spec"])
    for loose in ("volumeName", "storageClassName"):
        if not before.get(loose):
            before[loose] = after.get(loose)
    before["volumeAttributesClassName"] = after.get("volumeAttributesClassName")
    if (obj.get("status") or {}).get("phase") == "Bound":
        after["resources"] = _with_storage_of(before, after.get("resources") or {})
    errors = [] if _plain(after) == _plain(before) else [forbidden("spec", _CLAIM)]
    return errors + _shrinking(obj, old)


def _with_storage_of(before: Object, resources: Object) -> Object:
    """Return the resources with the requested storage of before, which a bound claim may change."""
    requests = resources.get("requests")
    if not requests:
        return resources
    storage = _storage(before)
    return {**resources, "requests": {**requests, **({"storage": storage} if storage else {})}}


def _shrinking(obj: Object, old: Object) -> list[FieldError]:
    after, before = parse(_storage(obj["spec"]) or 0), parse(_storage(old["spec"]) or 0)
    capacity = parse(((old.get("status") or {}).get("capacity") or {}).get("storage") or 0)
    if after >= before or after > capacity:
        return []
    return [forbidden("spec.resources.requests.storage", "field can not be less than status.capacity")]


def _storage(spec: Object) -> Any:
    return ((spec.get("resources") or {}).get("requests") or {}).get("storage")


def volume_changes(obj: Object, old: Object) -> list[FieldError]:
    """Return the errors for fixed fields of a volume that an update changes."""
    after, before = obj["spec"], old["spec"]
    errors = []
    if _source(after, before) != _source(before, before):
        errors.append(forbidden("spec.persistentvolumesource", _VOLUME))
    if after.get("volumeMode") != before.get("volumeMode"):
        errors.append(invalid("volumeMode", after.get("volumeMode"), "field is immutable"))
    affinity, fixed = after.get("nodeAffinity"), before.get("nodeAffinity")
    if fixed is not None and _plain(affinity) != _plain(_upgraded(fixed, affinity)):
        errors.append(invalid("nodeAffinity", _shown_affinity(affinity), _AFFINITY))
    return errors


def _source(spec: Object, before: Object) -> Any:
    """Return the source of a volume, without the one secret that may be added later."""
    source = {field: value for field, value in spec.items() if field not in _OUTSIDE_THE_SOURCE}
    if source.get("csi") and "controllerExpandSecretRef" not in (before.get("csi") or {}):
        source["csi"] = {k: v for k, v in source["csi"].items() if k != "controllerExpandSecretRef"}
    return _plain(source)


def _upgraded(old: Object, new: Object | None) -> Object:
    """Return the old affinity with the stable names of beta labels wherever the new one has them."""
    terms = [
        {**term, "matchExpressions": [_stable(each, other) for each, other in _pairs(term, now)]}
        for term, now in _aligned(_terms(old), _terms(new))
    ]
    return {**old, "required": {**(old.get("required") or {}), "nodeSelectorTerms": terms}}


def _terms(affinity: Object | None) -> list[Object]:
    return ((affinity or {}).get("required") or {}).get("nodeSelectorTerms") or []


def _pairs(term: Object, now: Object) -> Iterator[tuple[Object, Object]]:
    return _aligned(term.get("matchExpressions") or [], now.get("matchExpressions") or [])


def _aligned(old: list[Object], new: list[Object]) -> Iterator[tuple[Object, Object]]:
    for index, each in enumerate(old):
        yield each, new[index] if index < len(new) else {}


def _stable(expression: Object, now: Object) -> Object:
    _, stable = RENAMED_LABELS.get(expression.get("key") or "", ("", ""))
    return {**expression, "key": stable} if stable and now.get("key") == stable else expression


def _shown_affinity(affinity: Object | None) -> GoStruct | None:
    if affinity is None:
        return None
    required = affinity.get("required")
    terms = (
        None if required is None else GoStruct(NodeSelectorTerms=[_shown_term(t) for t in _terms(affinity)])
    )
    return GoStruct(Required=terms)


def _shown_term(term: Object) -> GoStruct:
    shown: Object = {}
    for field in ("matchExpressions", "matchFields"):
        given = term.get(field)
        shown[field[0].upper() + field[1:]] = None if given is None else [_shown(each) for each in given]
    return GoStruct(shown)


def _shown(expression: Object) -> GoStruct:
    key, operator = expression.get("key") or "", expression.get("operator") or ""
    return GoStruct(Key=key, Operator=operator, Values=expression.get("values"))


def _plain(value: Any) -> Any:
    """Return the value without fields that are empty, which equal absent ones."""
    if isinstance(value, dict):
        items = ((key, _plain(item)) for key, item in value.items())
        return {key: item for key, item in items if item not in (None, {}, [])}
    return [_plain(item) for item in value] if isinstance(value, list) else value
