"""The check of an applied configuration against its schema, in kube-apiserver's words."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.apply.fieldset import path_text
from kapsa.devcluster.embedded.apply.shape import Shape, TypedError
from kapsa.schemas.go_format import format_syntax, format_value, type_name

__all__ = ["check"]

_Errors = list[tuple[str, str]]
_NO_ERRORS: _Errors = []


def check(value: dict[str, Any], shape: Shape) -> None:
    """Raise a TypedError with all paths where `value` does not fit, duplicates included."""
    if errors := _check(value, shape):
        raise TypedError(*errors)


def _check(value: Any, shape: Shape) -> _Errors:
    """Return the errors at and below a value, with paths relative to it."""
    if value is None:
        return _NO_ERRORS
    form = shape.form_of(value)
    if form == "map":
        if type(value) is dict:
            return _check_map(value, shape)
        return [("", f"expected map, got &{{{format_value(value)}}}")]
    if form == "list":
        if type(value) is list:
            return _check_list(value, shape)
        return [("", f"expected list, got &{{{format_value(value)}}}")]
    problem = _scalar_problem(value, shape.scalar)
    return [("", problem)] if problem else _NO_ERRORS


def _below(element: str, errors: _Errors) -> _Errors:
    prefix = path_text((element,))
    return [(prefix + path, message) for path, message in errors]


def _check_map(value: dict[str, Any], shape: Shape) -> _Errors:
    errors = _NO_ERRORS
    for name, child in value.items():
        below = shape.field(name)
        if below is None:
            return [*errors, (f".{name}", "field not declared in schema")]
        if child_errors := _check(child, below):
            errors = [*errors, *_below(f"f:{name}", child_errors)]
    return errors


def _check_list(value: list[Any], shape: Shape) -> _Errors:
    errors = _NO_ERRORS
    seen: set[str] = set()
    item_shape = shape.item
    for index, item in enumerate(value):
        if shape.list_atomic:
            element = f"i:{index}"
        else:
            try:
                element = shape.element_of(item)
            except TypedError as error:
                return [*errors, ("", f"element {index}: {error}")]
            if element in seen:
                errors = [*errors, ("", f"duplicate entries for key {path_text((element,))}")]
            seen.add(element)
        if item_errors := _check(item, item_shape):
            errors = [*errors, *_below(element, item_errors)]
    return errors


def _scalar_problem(value: Any, scalar: str) -> str:
    number = type(value) in (int, float)
    match scalar:
        case "numeric" if not number:
            return f"expected numeric (int or float), got {type_name(value)}"
        case "string" if type(value) is not str:
            return f"expected string, got &value.valueUnstructured{{Value:{format_syntax(value)}}}"
        case "boolean" if type(value) is not bool:
            return f"expected boolean, got &{{{format_value(value)}}}"
        case "untyped" if not number and type(value) not in (str, bool):
            return f"expected any scalar, got &{{{format_value(value)}}}"
    return ""
