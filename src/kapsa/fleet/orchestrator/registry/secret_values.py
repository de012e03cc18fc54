"""Masks that come back from clients, which send what they were shown."""

from collections.abc import Iterator, Mapping
from typing import Any

from kapsa.fleet.domain.errors import InvalidField, InvalidInput
from kapsa.fleet.domain.values import MASK, merge_values

__all__ = ["refuse_masks", "refuse_revealed", "restored", "restored_layers"]

_NOTHING: Mapping[str, Any] = {}
_LONGEST_PATH = 200

Path = tuple[str, ...]


def restored(
    values: Mapping[str, Any],
    stored: Mapping[str, Any],
    shown: Mapping[str, Any],
    secret_paths: frozenset[Path],
    field: Path = ("values",),
) -> dict[str, Any]:
    """Return the values of a client, with what is stored in place of each mask that it was shown.

    A mask for a secret value goes, since that value is stored elsewhere. A masked key stands for all entries that are
    not shown, also for those below other keys. Raises InvalidInput for a mask that stands for nothing hidden: stored as
    it is, it would look like a hidden value to everybody, and reach Helm as six bullets.
    """
    return _restored(values, stored, shown, frozenset((*field, *each) for each in secret_paths), field)


def restored_layers(
    field: str,
    layers: Mapping[str, Mapping[str, Any]],
    stored: Mapping[str, Mapping[str, Any]],
    shown: Mapping[str, Mapping[str, Any]],
) -> dict[str, dict[str, Any]]:
    """Return the values of a client for environments or clusters, by their names, as `restored` does."""
    return {
        name: restored(values, _map(stored, name), _map(shown, name), frozenset(), (field, name))
        for name, values in layers.items()
    }


def refuse_masks(field: str, values: Mapping[str, Any]) -> None:
    """Raise InvalidInput if new values have a mask: nothing is stored that it could stand for."""
    for path in _masks(values, (field,)):
        raise _unknown_mask(path)


def refuse_revealed(shown: Mapping[str, Any], before: Mapping[str, Any], sent: Mapping[str, Any]) -> None:
    """Raise InvalidInput if a change shows values that were hidden until now and that the client did not send.

    They were hidden because they repeat a secret value. Without that secret, anybody who may change an operator could
    read them, and a password that is being replaced would appear to everybody.
    """
    for path in _revealed(shown, before, sent, ()):
        message = (
            "has a hidden value that may repeat a secret value, which this change removes: "
            "send values in the same request, with another value for it or without it"
        )
        raise _invalid(path, message)


def _revealed(
    shown: Mapping[str, Any], before: Mapping[str, Any], sent: Mapping[str, Any], path: Path
) -> Iterator[Path]:
    """Yield the path of each value that is shown now only, up to the last key that was shown before."""
    for key, value in shown.items():
        if MASK in (key, value) or any(key in layer and layer[key] == value for layer in (before, sent)):
            continue
        visible = key in before or key in sent
        here = (*path, key) if visible else path
        if isinstance(value, Mapping) and (value or visible):
            yield from _revealed(value, _map(before, key), _map(sent, key), here)
        else:
            yield here


def _restored(
    values: Mapping[str, Any],
    stored: Mapping[str, Any],
    shown: Mapping[str, Any],
    secret_paths: frozenset[Path],
    path: Path,
) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in values.items():
        here = (*path, key)
        if key == MASK:
            _check_masked_key(value, shown, path)
        elif value == MASK:
            if key in stored and shown.get(key, MASK) == MASK:
                result[key] = stored[key]
            elif shown.get(key) != MASK and here not in secret_paths:
                raise _unknown_mask(here)
        elif isinstance(value, Mapping):
            inner = _restored(value, _map(stored, key), _map(shown, key), secret_paths, here)
            if inner or not value:
                result[key] = inner
        else:
            for masked in _masks(value, here):
                raise _unknown_mask(masked)
            result[key] = value
    return merge_values(_unseen(stored, shown), result) if MASK in values else result


def _check_masked_key(value: Any, shown: Mapping[str, Any], path: Path) -> None:
    if shown.get(MASK) != MASK:
        raise _invalid(path, f"the key {MASK} stands for no hidden key: read the operator again")
    if value != MASK:
        message = (
            f"the key {MASK} stands for hidden keys, which have values already: leave it as it was, or out"
        )
        raise _invalid(path, message)


def _unseen(stored: Mapping[str, Any], shown: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stored entries that a masked key stands for: those not shown, unless another masked key is nearer."""
    result = {key: value for key, value in stored.items() if key not in shown}
    for key in stored.keys() & shown.keys():
        value, visible = stored[key], shown[key]
        if not isinstance(visible, Mapping) or MASK in visible:
            continue
        if not isinstance(value, Mapping):
            result[key] = value  # a secret value below it is shown in its place
        elif inner := _unseen(value, visible):
            result[key] = inner
    return result


def _masks(node: Any, path: Path) -> Iterator[Path]:
    """Yield the path of each mask in a document, be it a value or a key."""
    if node == MASK:
        yield path
    elif isinstance(node, Mapping):
        for key, value in node.items():
            if key == MASK:
                yield (*path, key)
            yield from _masks(value, (*path, key))
    elif isinstance(node, list):
        for number, value in enumerate(node):
            yield from _masks(value, (*path, str(number)))


def _map(values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = values.get(key)
    return value if isinstance(value, Mapping) else _NOTHING


def _unknown_mask(path: Path) -> InvalidInput:
    return _invalid(path, f"{MASK} stands for nothing that is hidden here: send the value, or leave it out")


def _invalid(path: Path, message: str) -> InvalidInput:
    name = ".".join(path)[:_LONGEST_PATH]
    pointer = "".join(f"/{key.replace('~', '~0').replace('/', '~1')}" for key in path)[:_LONGEST_PATH]
    return InvalidInput(f"{name}: {message}", InvalidField(pointer, message))
