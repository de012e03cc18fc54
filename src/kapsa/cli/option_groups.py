"""Groups of options that several commands share, each declared once as the fields of a struct."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

__all__ = ["OptionGroup", "expand_options"]


class OptionGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Options that belong together: each field is `Annotated` for typer, and has a default."""


def expand_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter that is an OptionGroup by the group's fields, as typer sees the command."""
    parameters = inspect.signature(command, eval_str=True).parameters.values()
    groups: dict[str, type[OptionGroup]] = {
        each.name: each.annotation for each in parameters if _is_group(each.annotation)
    }

    @functools.wraps(command)
    def expanded(**arguments: Any) -> None:
        for name, group in groups.items():
            arguments[name] = group(**{field: arguments.pop(field) for field in group.__struct_fields__})
        command(**arguments)

    options = [option for each in parameters for option in _options_of(each)]
    expanded.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    expanded.__annotations__ = {each.name: each.annotation for each in options}
    return expanded


def _is_group(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, OptionGroup)


def _options_of(parameter: inspect.Parameter) -> Iterator[inspect.Parameter]:
    """Yield the fields of a group as parameters, and any other parameter as it is, all by keyword."""
    if not _is_group(parameter.annotation):
        yield parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        return
    hints = typing.get_type_hints(parameter.annotation, include_extras=True)
    for field in msgspec.structs.fields(parameter.annotation):
        yield inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
