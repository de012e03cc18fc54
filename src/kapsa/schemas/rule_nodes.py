"""The nodes of a CRD's schema that have CEL rules."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["RuleNode"]


class RuleNode(msgspec.Struct, frozen=True):
    """A node of a schema that has rules."""

    raw: dict[str, Any]
    path: str
    uncorrelatable: str
    """Path of the list above it whose new items cannot be matched to old ones, "" if there is none."""
    cardinality: int | None
    """The most values of the node that an object can have, None if nothing bounds it."""
