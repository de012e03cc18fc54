"""Masks that come back from clients, which send what they were shown."""

from collections.abc import Mapping
from typing import Any

from kapsa.fleet.domain.errors import InvalidInput
from kapsa.fleet.domain.values import MASK

__all__ = ["restored"]

_NOTHING: Mapping[str, Any] = {}


def restored(
    values: Mapping[str, Any],
    stored: Mapping[str, Any],
    shown: Mapping[str, Any],
    secret_paths: frozenset[tuple[str, ...]],
    prefix: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Return the values of a client, with what is stored in place of each mask that it was shown.

    A mask for a secret value goes, since that value is stored elsewhere. A mask that nobody was shown is a text like any
    other. Raises InvalidInput for a masked key if no key is hidden there now: what it stood for is not known.
    """
    result: dict[str, Any] = {}
    if values.get(MASK) == MASK and MASK not in stored:
        result |= _hidden_entries(stored, shown, prefix)
    for key, value in values.items():
        path = (*prefix, key)
        masked = value == MASK and shown.get(key) == MASK
        if masked and key in stored:
            result[key] = stored[key]
        elif masked or (value == MASK and path in secret_paths):
            continue
        elif isinstance(value, Mapping):
            inner = restored(value, _map(stored, key), _map(shown, key), secret_paths, path)
            if inner or not value:
                result[key] = inner
        else:
            result[key] = value
    return result


def _hidden_entries(
    stored: Mapping[str, Any], shown: Mapping[str, Any], prefix: tuple[str, ...]
) -> dict[str, Any]:
    if shown.get(MASK) != MASK:
        name = ".".join(prefix) or "the values"
        raise InvalidInput(f"{name}: the key {MASK} stands for no hidden key: read the operator again")
    return {key: value for key, value in stored.items() if key not in shown}


def _map(values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = values.get(key)
    return value if isinstance(value, Mapping) else _NOTHING
