"""Helm values: layers that are merged as Helm merges them, and secret values that are masked."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["MASK", "canonical_json", "leaf_paths", "masked", "merge_values", "values_digest"]

MASK = "••••••"

Paths = frozenset[tuple[str, ...]]


def merge_values(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the layers merged, later ones winning: operator, environment, cluster, deployment.

    Maps merge key by key and anything else replaces. A null stays a null: Helm then removes the chart's own
    default, which it could not do if the key were gone.
    """
    result: dict[str, Any] = {}
    for layer in layers:
        result = _merge(result, layer)
    return result


def _merge(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(lower)
    for key, value in upper.items():
        below = result.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            result[key] = _merge(below, value)
        else:
            result[key] = value
    return result


def leaf_paths(values: Mapping[str, Any]) -> Paths:
    """Return the path of each value that is not a map with entries: the paths that a layer sets."""
    return frozenset(_leaves(values, ()))


def _leaves(values: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key)


def masked(values: Mapping[str, Any], secret_paths: Paths) -> dict[str, Any]:
    """Return a copy in which each value at a secret path is replaced by a mask."""
    return _replaced(values, (), secret_paths, lambda _value: MASK)


def values_digest(values: Mapping[str, Any], secret_paths: Paths) -> str:
    """Return `sha256:…` of the values, in which each secret one is represented by its own hash."""
    document = _replaced(values, (), secret_paths, lambda value: {"sha256": _sha256({"secret": value})})
    return "sha256:" + _sha256(document)


def canonical_json(document: Mapping[str, Any]) -> bytes:
    """Return JSON with sorted keys and no spaces: equal documents give equal bytes."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode()


def _sha256(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical_json(document)).hexdigest()


def _replaced(
    values: Mapping[str, Any], path: tuple[str, ...], secret_paths: Paths, replace: Any
) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in values.items():
        here = (*path, key)
        if here in secret_paths:
            result[key] = replace(value)
        elif isinstance(value, Mapping):
            result[key] = _replaced(value, here, secret_paths, replace)
        else:
            result[key] = value
    return result
