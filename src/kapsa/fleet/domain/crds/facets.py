"""Facets: the constraints on one value. A facet counts only for the types that it applies to."""

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import msgspec

from kapsa.fleet.domain.crds.changes import NodeChange, breaking, kinds, safe, warning
from kapsa.fleet.domain.crds.definitions import SchemaNode
from kapsa.fleet.domain.crds.findings import ChangeRule

__all__ = ["canonical", "default_changes", "facet_changes", "type_changes"]

_CHECKED_FORMATS = frozenset(
    {
        *("bsonobjectid", "byte", "cidr", "creditcard", "date", "datetime", "duration", "email", "hexcolor"),
        *("hostname", "ipv4", "ipv6", "isbn", "isbn10", "isbn13", "k8slongname", "k8sshortname", "mac"),
        *("rgbcolor", "ssn", "uri", "uuid", "uuid3", "uuid4", "uuid5"),
    }
)
"""The string formats that the API server checks, without hyphens. Others are documentation."""
_INTEGER_LIMITS = {"int32": 1 << 31}
_INT64_LIMIT = 1 << 63
_COUNTS = (
    ("min_length", "minLength", "string", 1),
    ("max_length", "maxLength", "string", -1),
    ("min_items", "minItems", "array", 1),
    ("max_items", "maxItems", "array", -1),
    ("min_properties", "minProperties", "object", 1),
    ("max_properties", "maxProperties", "object", -1),
)


def canonical(value: Any) -> bytes:
    """Return JSON in which equal values have equal bytes; 1 and 1.0 are equal, 1 and true are not."""
    return msgspec.json.encode(_whole(value), order="deterministic")


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return {key: _whole(item) for key, item in value.items()} if isinstance(value, dict) else value


def type_changes(old: SchemaNode, new: SchemaNode) -> NodeChange | None:
    """Return the change of the type, None if the node accepts the same types."""
    before, after = kinds(old), kinds(new)
    if before == after:
        return None
    names = f"{_type_name(old)} became {_type_name(new)}"
    if before < after:
        return warning(
            ChangeRule.TYPE_WIDENED, f"{names}: stored values stay valid, readers may see other types"
        )
    # A value with parts is pruned to nothing under a type without them; a scalar is only rejected.
    pruned = not before.isdisjoint({"object", "array"})
    return breaking(
        ChangeRule.TYPE_CHANGED, f"{names}: stored values no longer have the type", loses_data=pruned
    )


def _type_name(node: SchemaNode) -> str:
    return "int-or-string" if node.int_or_string else node.type or "any type"


def facet_changes(old: SchemaNode, new: SchemaNode) -> Iterator[NodeChange]:
    """Yield the changes of the constraints on the value itself."""
    types = kinds(old)
    for attribute, name, kind, sign in _COUNTS:
        before, after = getattr(old, attribute), getattr(new, attribute)
        if before != after and kind in types:
            yield from _count_change(name, before, after, sign)
    if "integer" in types or "number" in types:
        yield from _number_changes(old, new)
    if "string" in types:
        yield from _text_changes(old, new)
    if "array" in types and bool(old.unique_items) != bool(new.unique_items):
        before, after = ("true" if node.unique_items else None for node in (old, new))
        yield _bound_change("uniqueItems", before, after, bool(after))
    if old.enum != new.enum:
        yield from _enum_changes(old, new)
    if bool(old.nullable) != bool(new.nullable):
        yield _null_change(new)


def _count_change(name: str, before: int | None, after: int | None, sign: int) -> Iterator[NodeChange]:
    floor = 0 if sign > 0 else math.inf
    low, high = floor if before is None else before, floor if after is None else after
    low, high = (max(low, 0), max(high, 0)) if sign > 0 else (low, high)
    if low != high:
        yield _bound_change(name, before, after, sign * high > sign * low)


def _bound_change(name: str, before: Any, after: Any, tightened: bool) -> NodeChange:
    if before is None:
        text = f"{name} {after} is new"
    elif after is None:
        text = f"{name} {before} is gone"
    else:
        text = f"{name} went from {before} to {after}"
    if tightened:
        return breaking(ChangeRule.BOUND_TIGHTENED, f"{text}: stored values may be beyond it", validates=True)
    return safe(ChangeRule.BOUND_RELAXED, text)


def _number_changes(old: SchemaNode, new: SchemaNode) -> Iterator[NodeChange]:
    for name, sign, before, after in (
        ("minimum", 1, _lower(old), _lower(new)),
        ("maximum", -1, _upper(old), _upper(new)),
    ):
        tightened = after is not None and (before is None or after > before)
        if tightened or _shown(before, sign) != _shown(after, sign):
            yield _bound_change(name, _shown(before, sign), _shown(after, sign), tightened)
    step, new_step = old.multiple_of, new.multiple_of
    if step != new_step:
        tightened = bool(new_step) and (not step or not _is_multiple(step, new_step or 1))
        yield _bound_change("multipleOf", step, new_step, tightened)


def _is_multiple(value: float, factor: float) -> bool:
    return (Fraction(str(value)) / Fraction(str(factor))).denominator == 1


_Limit = tuple[float, bool] | None
"""A bound, and whether it is exclusive. An upper bound is negated, so that the greater limit is the narrower."""


def _lower(node: SchemaNode) -> _Limit:
    return _limit(node.minimum, bool(node.exclusive_minimum), _integer_limit(node))


def _upper(node: SchemaNode) -> _Limit:
    maximum = None if node.maximum is None else -node.maximum
    limit = _integer_limit(node)
    return _limit(maximum, bool(node.exclusive_maximum), None if limit is None else limit - 1)


def _integer_limit(node: SchemaNode) -> int | None:
    return _INTEGER_LIMITS.get(node.format or "", _INT64_LIMIT) if node.type == "integer" else None


def _limit(bound: float | None, exclusive: bool, range_: int | None) -> _Limit:
    """Return a limit; for integers a whole one that is never exclusive, within the range of the format."""
    if bound is not None and not math.isfinite(bound):
        bound = None
    if range_ is None:
        return None if bound is None else (bound, exclusive)
    if bound is None:
        return (-range_, False)
    whole = math.floor(bound) + 1 if exclusive else math.ceil(bound)
    return (max(whole, -range_), False)


def _shown(limit: _Limit, sign: int) -> str | None:
    """Return a limit for people, None for the range that every integer has."""
    if limit is None or abs(limit[0]) >= _INT64_LIMIT - 1:
        return None
    return f"{limit[0] * sign}" + (" (exclusive)" if limit[1] else "")


def _text_changes(old: SchemaNode, new: SchemaNode) -> Iterator[NodeChange]:
    before, after = old.pattern or "", new.pattern or ""
    if before != after:
        if after:
            text = f"pattern {after!r} is new" if not before else f"pattern {before!r} became {after!r}"
            yield breaking(ChangeRule.PATTERN_CHANGED, f"{text}: stored values may not match", validates=True)
        else:
            yield safe(ChangeRule.PATTERN_REMOVED, f"pattern {before!r} is gone")
    before, after = _format(old), _format(new)
    if before != after:
        if after:
            text = f"format {after} is new" if not before else f"format {before} became {after}"
            yield breaking(
                ChangeRule.FORMAT_CHANGED, f"{text}: stored values may not have it", validates=True
            )
        else:
            yield safe(ChangeRule.FORMAT_REMOVED, f"format {before} is gone")


def _format(node: SchemaNode) -> str:
    """Return the string format if the API server checks it."""
    if node.type not in (None, "", "string") or not node.format:
        return ""
    if node.format == "password" and node.type != "string":
        return "password"  # every text has this format, and nothing else does
    return node.format if node.format.replace("-", "") in _CHECKED_FORMATS else ""


def _enum_changes(old: SchemaNode, new: SchemaNode) -> Iterator[NodeChange]:
    if new.enum is None:
        yield safe(ChangeRule.ENUM_REMOVED, "any value is accepted now")
        return
    after = {canonical(value): value for value in new.enum}
    if old.enum is None:
        text = f"only {_listed(after)} are accepted now"
        yield breaking(ChangeRule.ENUM_ADDED, text, validates=True)
        return
    before = {canonical(value): value for value in old.enum}
    removed, added = before.keys() - after.keys(), after.keys() - before.keys()
    if removed:
        text = f"{_listed(removed)} is not accepted any more"
        yield breaking(ChangeRule.ENUM_VALUE_REMOVED, text, validates=True)
    if added:
        yield warning(
            ChangeRule.ENUM_VALUE_ADDED, f"{_listed(added)} is new: older clients may not understand it"
        )


def _listed(values: Any) -> str:
    names = sorted(value.decode() for value in values)
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _null_change(new: SchemaNode) -> NodeChange:
    if new.nullable:
        return safe(ChangeRule.NULL_ALLOWED, "null is accepted now")
    text = "null is not accepted any more: in fields it is dropped, in lists it is rejected"
    return breaking(ChangeRule.NULL_FORBIDDEN, text, loses_data=True)


def default_changes(old: Any, new: Any, *, required: bool) -> NodeChange | None:
    """Return the change of a default; `required` says that the new schema requires the field."""
    if old == new and type(old) is type(new):
        return None
    if old is None:
        return warning(ChangeRule.DEFAULT_ADDED, f"objects without the field read as {_short(new)} now")
    if new is not None:
        if canonical(old) == canonical(new):
            return None
        return warning(
            ChangeRule.DEFAULT_CHANGED, f"objects without the field read as {_short(new)}, not {_short(old)}"
        )
    text = f"objects without the field no longer read as {_short(old)}"
    if required:
        return breaking(ChangeRule.DEFAULT_REMOVED, f"{text}, and the field is required")
    return warning(ChangeRule.DEFAULT_REMOVED, text)


def _short(value: Any) -> str:
    text = canonical(value).decode()
    return text if len(text) <= 60 else f"{text[:57]}..."
