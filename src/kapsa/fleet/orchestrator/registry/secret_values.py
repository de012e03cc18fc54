"""Masks of secret values that come back from clients, which send what they were shown."""

from collections.abc import Mapping
from typing import Any

from kapsa.fleet.domain.values import MASK

__all__ = ["without_masks"]


def without_masks(values: Mapping[str, Any], secret_paths: frozenset[tuple[str, ...]]) -> dict[str, Any]:
    """Return the values without the masks at these paths. A mask elsewhere is a text like any other."""
    return _without(values, (), secret_paths)


def _without(
    values: Mapping[str, Any], prefix: tuple[str, ...], secret_paths: frozenset[tuple[str, ...]]
) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in values.items():
        path = (*prefix, key)
        if value == MASK and path in secret_paths:
            continue
        if isinstance(value, Mapping):
            inner = _without(value, path, secret_paths)
            if inner or not value:
                result[key] = inner
        else:
            result[key] = value
    return result
