"""The patches of mutating policies: a configuration merged into an object, or a JSON patch."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from kapsa.devcluster.embedded.apply.json_patch import OperationError, PatchTestError, json_patch
from kapsa.devcluster.embedded.apply.merge import merge
from kapsa.devcluster.embedded.apply.shape import Shape, TypedError, shape_of
from kapsa.devcluster.embedded.apply.typecheck import check
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.wire.status_errors import StatusError
from kapsa.schemas.cel.values import CelDuration, MessageValue, Optional, Timestamp

__all__ = ["PolicyPatchError", "apply_configuration", "apply_json_patch"]

Object = dict[str, Any]


class PolicyPatchError(Exception):
    """A mutation that cannot be applied, in the words of the real server."""


def apply_configuration(info: ResourceInfo, obj: Object, configuration: MessageValue) -> Object:
    """Return an object with the fields of a configuration merged into it. Raises PolicyPatchError."""
    _check_type_names(configuration, "Object")
    applied = {**_plain(configuration), "apiVersion": info.api_version, "kind": info.kind}
    shape = shape_of(info.schema)
    try:
        check(applied, shape)
    except TypedError as error:
        why = f"failed to convert patch object to typed object: {error}"
        raise PolicyPatchError(f"error applying patch: {why}") from None
    atomics = list(_atomics(applied, shape, ""))
    if atomics:
        why = f"may not mutate atomic arrays, maps or structs: {', '.join(atomics)}"
        raise PolicyPatchError(f"error applying patch: invalid ApplyConfiguration: {why}")
    return merge(obj, applied, shape)


def apply_json_patch(obj: Object, operations: list[MessageValue]) -> Object:
    """Return an object after a JSON patch, the same object if a test of the patch fails. Raises PolicyPatchError."""
    try:
        patched = json_patch(obj, [_operation(each) for each in operations])
    except StatusError as error:
        cause = error.__cause__
        if isinstance(cause, PatchTestError):
            return obj
        raise PolicyPatchError(
            f"JSON Patch: {cause if isinstance(cause, OperationError) else error.message}"
        ) from None
    if not isinstance(patched, dict):
        raise PolicyPatchError("JSON Patch: the result is not an object")
    return patched


def _operation(patch: MessageValue) -> Object:
    operation = {"op": patch.get("op", ""), "path": patch.get("path", "")}
    if patch.get("from"):
        operation["from"] = patch["from"]
    if "value" in patch:
        if isinstance(patch["value"], MessageValue):
            _check_type_names(patch["value"], patch["value"].type_name)
        operation["value"] = _plain(patch["value"])
    return operation


def _check_type_names(value: MessageValue, path: str) -> None:
    problems = list(_type_name_problems(value, path))
    if problems:
        raise PolicyPatchError("type mismatch: " + "\n".join(problems))


def _type_name_problems(value: Any, path: str) -> Iterator[str]:
    """Yield an error for each object that is not named after the path of its field."""
    if isinstance(value, MessageValue):
        if value.type_name != path:
            rest = "which matches field name path from root Object type"
            yield f'unexpected type name "{value.type_name}", expected "{path}", {rest}'
        for name, child in value.items():
            yield from _type_name_problems(child, f"{path}.{name}")
    elif isinstance(value, (list, dict)):
        for child in value.values() if isinstance(value, dict) else value:
            yield from _type_name_problems(child, path)


def _plain(value: Any) -> Any:
    """Return a value of an expression as JSON. Raises PolicyPatchError for one that has no form in JSON."""
    if value is None or isinstance(value, (str, bool, float)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise PolicyPatchError(f'map key "{key}" is not a string')
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, (CelDuration, Timestamp)):
        return str(value)
    if isinstance(value, Optional) and value.given:
        return _plain(value.value)
    name = getattr(value, "type_name", type(value).__name__)
    raise PolicyPatchError(f"a value of type {name} has no form in JSON")


def _atomics(value: Any, shape: Shape, path: str) -> Iterator[str]:
    """Yield the paths of lists and objects that can be replaced only as a whole."""
    form = shape.form_of(value)
    if form == "map" and isinstance(value, dict):
        if shape.map_atomic:
            yield path
        for name, child in value.items():
            below = shape.field(name)
            if below is not None:
                yield from _atomics(child, below, f"{path}.{name}")
    elif form == "list" and isinstance(value, list):
        if shape.list_atomic:
            yield path
        for index, item in enumerate(value):
            yield from _atomics(item, shape.item, f"{path}[{index}]")
