"""The owners of fields, as the API server names them when an apply conflicts."""

import re

import msgspec

from kapsa.runtime import ApiError, Conflict

__all__ = ["FieldOwner", "field_owners"]

_OWNER = re.compile(r'conflict with "((?:[^"\\]|\\.)*)"(?: with subresource "([^"]*)")?( using )?')
_REASON = "FieldManagerConflict"


class FieldOwner(msgspec.Struct, frozen=True):
    """A field that another manager owns with another value."""

    field: str
    manager: str
    updates: bool
    """True if the manager writes by update, False if by server-side apply."""


def field_owners(error: ApiError | None) -> list[FieldOwner]:
    """Return the fields and owners of a conflict of server-side apply; none for any other error."""
    if not isinstance(error, Conflict):
        return []
    return [_owner(each.field, each.message) for each in error.causes if each.reason == _REASON]


def _owner(field: str, message: str) -> FieldOwner:
    match = _OWNER.search(message)
    if match is None:
        return FieldOwner(field, message[:200] or "another manager", updates=True)
    name, subresource, updates = match.groups()
    name = name.replace('\\"', '"').replace("\\\\", "\\")
    return FieldOwner(field, f"{name} ({subresource})" if subresource else name, updates=bool(updates))
