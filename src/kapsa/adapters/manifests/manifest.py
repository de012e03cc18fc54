"""A Kubernetes object as a dictionary, and its name in messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

__all__ = ["Manifest", "display_name"]

Manifest: TypeAlias = dict[str, Any]
"""A Kubernetes object as a dictionary."""


def display_name(manifest: Mapping[str, Any]) -> str:
    """Return an object's kind and name, for messages to people."""
    metadata = manifest.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return f"{manifest.get('kind') or 'object'} {name or '(unnamed)'}"
