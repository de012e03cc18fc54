"""An object as YAML has it, and its short name in messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

__all__ = ["Manifest", "display_name"]

Manifest: TypeAlias = dict[str, Any]
"""An object as YAML has it."""


def display_name(manifest: Mapping[str, Any]) -> str:
    """Return an object's kind and name, for messages to people."""
    metadata = manifest.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return f"{manifest.get('kind') or 'object'} {name or '(unnamed)'}"
