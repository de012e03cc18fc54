"""Whether an applied configuration fits its schema, in the real server's words."""

from __future__ import annotations

from typing import Any

from .field_errors import go_float, quote
from .fieldset import path_text
from .shape import Shape, TypedError

__all__ = ["check", "go_syntax", "go_value"]

_Errors = list[tuple[str, str]]


def check(value: dict[str, Any], shape: Shape) -> None:
    """Raise a TypedError that names every place where `value` does not fit; duplicates do not fit either."""
    errors: _Errors = []
    _check(value, shape, "", errors)
    if errors:
        raise TypedError(*errors)


def _check(value: Any, shape: Shape, where: str, errors: _Errors) -> None:
    if value is None:
        return
    form = shape.form_of(value)
    if form == "map":
        if type(value) is dict:
            _check_map(value, shape, where, errors)
        else:
            errors.append((where, f"expected map, got &{{{go_value(value)}}}"))
    elif form == "list":
        if type(value) is list:
            _check_list(value, shape, where, errors)
        else:
            errors.append((where, f"expected list, got &{{{go_value(value)}}}"))
    elif problem := _scalar_problem(value, shape.scalar):
        errors.append((where, problem))


def _check_map(value: dict[str, Any], shape: Shape, where: str, errors: _Errors) -> None:
    for name, child in value.items():
        below = shape.field(name)
        if below is None:
            errors.append((f"{where}.{name}", "field not declared in schema"))
            return
        _check(child, below, f"{where}.{name}", errors)


def _check_list(value: list[Any], shape: Shape, where: str, errors: _Errors) -> None:
    seen: set[str] = set()
    for index, item in enumerate(value):
        if shape.list_atomic:
            _check(item, shape.item, f"{where}[{index}]", errors)
            continue
        try:
            element = shape.element_of(item)
        except TypedError as error:
            errors.append((where, f"element {index}: {error}"))
            return
        if element in seen:
            errors.append((where, f"duplicate entries for key {path_text((element,))}"))
        seen.add(element)
        _check(item, shape.item, where + path_text((element,)), errors)


def _scalar_problem(value: Any, scalar: str) -> str:
    number = type(value) in (int, float)
    match scalar:
        case "numeric" if not number:
            return f"expected numeric (int or float), got {_go_type(value)}"
        case "string" if type(value) is not str:
            return f"expected string, got &value.valueUnstructured{{Value:{go_syntax(value)}}}"
        case "boolean" if type(value) is not bool:
            return f"expected boolean, got &{{{go_value(value)}}}"
        case "untyped" if not number and type(value) not in (str, bool):
            return f"expected any scalar, got &{{{go_value(value)}}}"
    return ""


_GO_TYPES = {
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
    dict: "map[string]interface {}",
    list: "[]interface {}",
}


def _go_type(value: Any) -> str:
    return _GO_TYPES.get(type(value), "<nil>")


def go_value(value: Any) -> str:
    """A value under Go's %v: `map[a:1 b:[x y]]`."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return "true" if value else "false"
        case float():
            return go_float(value)
        case dict():
            return "map[" + " ".join(f"{key}:{go_value(value[key])}" for key in sorted(value)) + "]"
        case list():
            return "[" + " ".join(map(go_value, value)) + "]"
    return str(value)


def go_syntax(value: Any) -> str:
    """A value under Go's %#v: `map[string]interface {}{"a":1}`."""
    match value:
        case None:
            return "interface {}(nil)"
        case str():
            return quote(value)
        case dict():
            items = ", ".join(f"{quote(key)}:{go_syntax(value[key])}" for key in sorted(value))
            return f"{_GO_TYPES[dict]}{{{items}}}"
        case list():
            return f"{_GO_TYPES[list]}{{{', '.join(map(go_syntax, value))}}}"
    return go_value(value)
