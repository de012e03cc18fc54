"""The descriptions in a schema: shortened or removed, so that a CRD stays within what kubectl accepts."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kapsa.runtime.generate.constraints import JSON

__all__ = ["change_descriptions", "fit_descriptions", "shorten"]

_LARGEST = 250_000
"""Bytes of JSON. `kubectl apply` keeps the whole object in an annotation, and annotations are limited to 262,144."""
_LENGTHS = (240, 80, 0)
"""Lengths of descriptions that are tried in turn if whole ones make the CRD too large."""


def fit_descriptions(crd: JSON, length: int | None) -> JSON:
    """Return a CRD whose schemas have no description longer than `length`; with 0 they have none.

    With None they are whole, unless `kubectl apply` would reject the CRD: then they are as long as it allows.
    """
    if length is not None:
        return _shortened(crd, length)
    for shorter in _LENGTHS:
        if len(msgspec.json.encode(crd)) <= _LARGEST:
            break
        crd = _shortened(crd, shorter)
    return crd


def _shortened(crd: JSON, length: int) -> JSON:
    versions = []
    for version in crd["spec"]["versions"]:
        schema = change_descriptions(version["schema"]["openAPIV3Schema"], lambda text: shorten(text, length))
        versions.append({**version, "schema": {"openAPIV3Schema": schema}})
    return {**crd, "spec": {**crd["spec"], "versions": versions}}


def change_descriptions(schema: JSON, change: Callable[[str], str]) -> JSON:
    """Return a schema with each description changed, or removed if the change leaves nothing of it.

    A property may be named `description` too, and stays.
    """
    changed: JSON = {}
    for key, value in schema.items():
        if key == "description":
            if text := change(value):
                changed[key] = text
        elif key == "properties":
            changed[key] = {name: change_descriptions(each, change) for name, each in value.items()}
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            changed[key] = change_descriptions(value, change)
        else:
            changed[key] = value
    return changed


def shorten(text: str, length: int) -> str:
    """Return at most `length` characters of a text: whole sentences if one fits, else whole words."""
    if len(text) <= length:
        return text
    head = text[:length]
    sentences = max(head.rfind(". "), head.rfind(".\n"), length - 1 if head.endswith(".") else -1)
    if sentences >= 0:
        return head[: sentences + 1]
    words, space, _ = head.rpartition(" ")
    return f"{words}…" if space else ""
