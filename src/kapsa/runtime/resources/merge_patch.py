"""The JSON merge patch (RFC 7386) between two documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["merge_patch"]


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the RFC 7386 patch that turns `before` into `after`; empty if they are equal."""
    patch: dict[str, Any] = {key: None for key in before if key not in after}
    for key, new in after.items():
        old = before.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            if nested := merge_patch(old, new):
                patch[key] = nested
        elif key not in before or old != new or type(old) is not type(new):
            patch[key] = new
    return patch
