"""JSON patch and JSON merge patch, with the quirks of the library that kube-apiserver uses.

Documents are never changed; a result shares their unchanged parts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kapsa.devcluster.wire.status_errors import StatusError, bad_request

__all__ = ["MAXIMUM_OPERATIONS", "OperationError", "PatchTestError", "json_patch", "merge_patch"]

MAXIMUM_OPERATIONS = 10_000
"""The maximum number of operations in one JSON patch."""
MAXIMUM_COPIED = 3 * 1024 * 1024
"""The maximum of bytes that the copy operations of one JSON patch may add: each could double the document."""

_GO_KINDS = {dict: "object", list: "array", str: "string", bool: "bool", int: "number", float: "number"}


# -- RFC 7386


def merge_patch(doc: dict[str, Any], patch: Any) -> dict[str, Any]:
    """Return `doc` after a JSON merge patch.

    Raises StatusError 400 if the patch is not an object.
    """
    if patch is None:
        raise bad_request("Invalid JSON Patch")
    if type(patch) is not dict:
        kind = _GO_KINDS.get(type(patch), "value")
        raise bad_request(
            f"error decoding patch: json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"
        )
    return _merge(doc, patch)


def _merge(doc: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    result = dict(doc)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
            continue
        before = result.get(name)
        if type(before) is not dict:
            result[name] = _without_nulls(value)
        elif type(value) is dict:
            result[name] = _merge(before, value)
        else:
            result[name] = value
    return result


def _without_nulls(value: Any) -> Any:
    """Return a value that a patch adds without its nulls, which mean absent; a null in a list is an item."""
    if type(value) is dict:
        return {name: _without_nulls(child) for name, child in value.items() if child is not None}
    if type(value) is list:
        return [_without_nulls(item) for item in value]
    return value


# -- RFC 6902


class OperationError(Exception):
    """An operation that does not apply. kube-apiserver returns the reason to policies and webhooks only."""


class _MissingPathError(OperationError):
    """A path whose parent does not exist."""


class PatchTestError(OperationError):
    """A `test` operation that did not find its value."""


def json_patch(doc: dict[str, Any], operations: Any) -> Any:
    """Return `doc` after a JSON patch.

    Raises StatusError: 400 for an invalid patch, 413 for too many operations, 422 for one that does not
    apply.
    """
    _check_operations(operations)
    result: Any = doc
    copied = 0
    try:
        for operation in operations or ():
            copied += _size_copied(result, operation, MAXIMUM_COPIED - copied)
            result = _operate(result, operation)
    except OperationError as error:
        raise StatusError(
            422, "Invalid", "the server rejected our request due to an error in our request", details={}
        ) from error
    return result


def _check_operations(operations: Any) -> None:
    target = "[]handlers.jsonPatchOp"
    wrong = operations if type(operations) is not list else None
    for operation in operations if type(operations) is list else ():
        if type(operation) is not dict and operation is not None:
            wrong, target = operation, "handlers.jsonPatchOp"
            break
    if wrong is not None:
        kind = _GO_KINDS.get(type(wrong), "value")
        raise bad_request(
            f"error decoding patch: json: cannot unmarshal {kind} into Go value of type {target}"
        )
    if operations is not None and len(operations) > MAXIMUM_OPERATIONS:
        message = (
            "Request entity too large: The allowed maximum operations in a JSON patch is "
            f"{MAXIMUM_OPERATIONS}, got {len(operations)}"
        )
        raise StatusError(413, "RequestEntityTooLarge", message)


def _size_copied(doc: Any, operation: dict[str, Any] | None, allowed: int) -> int:
    """Return the number of bytes that an operation copies."""
    if not operation or operation.get("op") != "copy":
        return 0
    size = len(msgspec.json.encode(_get(doc, _path(operation, "from"))))
    if size > allowed:
        raise OperationError(f"the copies are larger than {MAXIMUM_COPIED} bytes")
    return size


def _operate(doc: Any, operation: dict[str, Any] | None) -> Any:
    operation = operation or {}
    match operation.get("op"):
        case "add":
            return _explained(doc, operation, _adding(operation.get("value")))
        case "remove":
            return _explained(doc, operation, _removing)
        case "replace":
            return _replace(doc, _path(operation), operation)
        case "move":
            source = _path(operation, "from")
            value = _get(doc, source)
            return _edit(_edit(doc, source, _removing), _path(operation), _adding(value))
        case "copy":
            value = _get(doc, _path(operation, "from"))
            return _edit(doc, _path(operation), _adding(value))
        case "test":
            return _test(doc, _path(operation), operation.get("value"))
    raise OperationError(f"Unexpected kind: {operation.get('op', 'unknown')}")


def _path(operation: dict[str, Any], name: str = "path") -> list[str] | None:
    """Return the decoded tokens of a pointer, None for the whole document."""
    pointer = operation.get(name)
    if type(pointer) is not str:
        raise OperationError(f"operation missing {name} field")
    tokens = pointer.split("/")[1:]
    if tokens:
        return [token.replace("~1", "/").replace("~0", "~") for token in tokens]
    if pointer:
        raise OperationError(f"doc is missing path: {pointer}")
    return None


_Change = Callable[[Any, str], None]
"""A change of one container, a copy, at one key."""


def _explained(doc: Any, operation: dict[str, Any], change: _Change) -> Any:
    """Edit a document. Raises OperationError with the real server's reason."""
    path, name, pointer = _path(operation), operation["op"], operation["path"]
    try:
        return _edit(doc, path, change)
    except _MissingPathError:
        missing = f'doc is missing path: "{pointer}": missing value'
        raise OperationError(f"{name} operation does not apply: {missing}") from None
    except OperationError as error:
        raise OperationError(f"error in {name} for path: '{pointer}': {error}") from None


def _edit(doc: Any, path: list[str] | None, change: _Change) -> Any:
    if path is None:
        raise OperationError("doc is missing path")
    return _edit_below(doc, path, change)


def _edit_below(container: Any, path: list[str], change: _Change) -> Any:
    if type(container) not in (dict, list):
        raise _MissingPathError(f"doc is missing path: {'/'.join(path)}")
    copy = container.copy()
    if len(path) == 1:
        change(copy, path[0])
    else:
        try:
            key = _existing(copy, path[0])
        except OperationError:
            raise _MissingPathError(f"doc is missing path: {'/'.join(path)}") from None
        copy[key] = _edit_below(copy[key], path[1:], change)
    return copy


def _existing(container: Any, token: str) -> Any:
    """Return the key or index of an existing member."""
    if type(container) is dict:
        if token in container:
            return token
        raise OperationError(f"Unable to remove nonexistent key: {token}: missing value")
    return _index(container, token, len(container))


def _index(container: list[Any], token: str, size: int) -> int:
    """Return an index below `size`; a negative one counts from the end."""
    try:
        index = int(token)
    except ValueError:
        raise OperationError(f"value was not a proper array index: '{token}'") from None
    if not -size <= index < size:
        raise OperationError(f"Unable to access invalid index: {index}: invalid index referenced")
    return index + size if index < 0 else index


def _adding(value: Any) -> _Change:
    def add(container: Any, key: str) -> None:
        if type(container) is dict:
            container[key] = value
        elif key == "-":
            container.append(value)
        else:
            container.insert(_index(container, key, len(container) + 1), value)

    return add


def _removing(container: Any, token: str) -> None:
    del container[_existing(container, token)]


def _replace(doc: Any, path: list[str] | None, operation: dict[str, Any]) -> Any:
    value = operation.get("value")
    if path is None:
        if type(value) not in (dict, list):
            raise OperationError("replace operation value must be object or array")
        return value

    def put(container: Any, token: str) -> None:
        # A member of an object need not exist: kube-apiserver adds it.
        container[token if type(container) is dict else _existing(container, token)] = value

    return _edit(doc, path, put)


def _get(doc: Any, path: list[str] | None) -> Any:
    """Return the value at a path; a missing member of an object is null."""
    if path is None:
        raise OperationError("doc is missing path")
    for depth, token in enumerate(path):
        if type(doc) not in (dict, list):
            raise OperationError(f"doc is missing path: {'/'.join(path)}")
        last = depth == len(path) - 1
        doc = doc.get(token) if last and type(doc) is dict else doc[_existing(doc, token)]
    return doc


def _test(doc: Any, path: list[str] | None, expected: Any) -> Any:
    actual = doc if path is None else _get(doc, path)
    if not _identical(actual, expected):
        raise PatchTestError("test failed")
    return doc


def _identical(left: Any, right: Any) -> bool:
    """Return whether two values are equal, numbers by their text, as kube-apiserver compares them."""
    if type(left) is not type(right):
        return False
    if type(left) is dict:
        return left.keys() == right.keys() and all(_identical(left[name], right[name]) for name in left)
    if type(left) is list:
        return len(left) == len(right) and all(map(_identical, left, right))
    return bool(left == right)
