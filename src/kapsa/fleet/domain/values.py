"""Helm values: layers that are merged as Helm merges them, and secret values that are masked."""

from collections.abc import Mapping
from typing import Any

__all__ = ["MASK", "masked", "merge_values"]

MASK = "••••••"


def merge_values(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the layers merged, later ones winning: operator, environment, cluster, deployment.

    Maps merge key by key, anything else replaces, and a null removes the key, as in Helm.
    """
    result: dict[str, Any] = {}
    for layer in layers:
        result = _merge(result, layer)
    return result


def _merge(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(lower)
    for key, value in upper.items():
        below = result.get(key)
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(below, Mapping):
            result[key] = _merge(below, value)
        else:
            result[key] = value
    return result


def masked(values: Mapping[str, Any], secret_paths: frozenset[tuple[str, ...]]) -> dict[str, Any]:
    """Return a copy in which each value at a secret path is replaced by a mask."""
    return {key: _mask(value, (key,), secret_paths) for key, value in values.items()}


def _mask(value: Any, path: tuple[str, ...], secret_paths: frozenset[tuple[str, ...]]) -> Any:
    if path in secret_paths:
        return MASK
    if isinstance(value, Mapping):
        return {key: _mask(inner, (*path, key), secret_paths) for key, inner in value.items()}
    return value
