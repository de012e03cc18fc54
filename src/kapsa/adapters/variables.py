"""Environment variables, read into a struct of settings: one variable for each field, with clear errors."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from kapsa.runtime import field_descriptions

__all__ = ["SettingsError", "document_variables", "read_variables", "variable_text"]

_BOOLEANS = {
    "true": True,
    "1": True,
    "yes": True,
    "on": True,
    "false": False,
    "0": False,
    "no": False,
    "off": False,
}


class SettingsError(Exception):
    """An invalid setting."""

    for_the_user = True


def read_variables(
    struct: type[msgspec.Struct],
    prefix: str,
    environment: Mapping[str, str],
    *,
    secret: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """Return the fields that the environment sets. The variable of a field is its name in capitals.

    A variable that is empty is not set, and `none` is an empty text or list. The values of secret fields are in no error.

    Raises SettingsError with the variable, its value and the valid values.
    """
    given: dict[str, Any] = {}
    hints = typing.get_type_hints(struct, include_extras=True)
    for field in msgspec.structs.fields(struct):
        variable = prefix + field.name.upper()
        text = environment.get(variable, "").strip()
        if text:
            given[field.name] = _read(variable, text, hints[field.name], field.name in secret)
    return given


def document_variables(struct: type[msgspec.Struct], prefix: str) -> list[tuple[str, str, str]]:
    """Return each variable with its default and its description."""
    descriptions = field_descriptions(struct)
    return [
        (
            prefix + field.name.upper(),
            variable_text(None if field.default in ("", ()) else field.default),
            descriptions[field.name],
        )
        for field in msgspec.structs.fields(struct)
    ]


def variable_text(value: Any) -> str:
    """Return a value in the form of its variable."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(value) or "none"
    if isinstance(value, float):
        return f"{value:g}"
    return "" if value is None else str(value) or "none"


def _read(variable: str, text: str, hint: Any, is_secret: bool) -> Any:
    plain: Any = text
    if hint is str and text.lower() == "none":
        return ""
    if hint is bool:
        plain = _BOOLEANS.get(text.lower(), text)
    elif typing.get_origin(hint) is tuple:
        plain = [] if text.lower() == "none" else [part.strip() for part in text.split(",") if part.strip()]
    elif typing.get_origin(hint) is Literal:
        plain = next((each for each in typing.get_args(hint) if each.lower() == text.lower()), text)
    try:
        return msgspec.convert(plain, hint, strict=False, dec_hook=lambda kind, value: kind(value))
    except (msgspec.ValidationError, ValueError):
        shown = "invalid" if is_secret else repr(text)
        raise SettingsError(f"{variable} is {shown}, but must be {_expected(hint)}") from None


def _expected(hint: Any) -> str:
    """Return the description of a valid value."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return f"one of {', '.join(arguments)}"
    if hint is bool:
        return "true or false"
    if origin is not Annotated:  # a number that may be absent
        return _expected(arguments[0])
    kind, limits = arguments
    number = "a whole number" if kind is int else "a number"
    low = f"more than {limits.gt:g}" if limits.gt is not None else f"at least {limits.ge}"
    high = f" and at most {limits.le}" if limits.le is not None else ""
    return f"{number}, {low}{high}"
