"""JSON merge patches (RFC 7386): the patch between two documents, and whether a patch changes one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["changes", "merge_patch"]


def merge_patch(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return the RFC 7386 patch that turns `before` into `after`, both of plain JSON types; empty if they are equal."""
    patch: dict[str, Any] = {key: None for key in before if key not in after}
    for key, new in after.items():
        old = before.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            if nested := merge_patch(old, new):
                patch[key] = nested
        elif key not in before or old != new or type(old) is not type(new):
            patch[key] = new
    return patch


def changes(patch: Any, document: Any) -> bool:
    """Return whether a merge patch would change a document."""
    if not isinstance(patch, Mapping):
        return type(patch) is not type(document) or bool(patch != document)
    if not isinstance(document, Mapping):
        return True
    return any(
        key in document if value is None else key not in document or changes(value, document[key])
        for key, value in patch.items()
    )
