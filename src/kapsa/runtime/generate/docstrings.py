"""Descriptions from source: the docstring of a class, and the string literals below its fields."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import textwrap

__all__ = ["class_description", "field_descriptions"]

_PARAMETERS = re.compile(r"\n\s*\*\*parameters\*\*\s*\n")
_PARAMETER = re.compile(r"^\s*\* \*\*(\w+)\*\* ``[^`]*`` - ", re.MULTILINE)
"""Generated models describe their fields in the docstring of the class, in this form."""


def class_description(cls: type) -> str:
    """Return the docstring of the class itself, not of its bases; empty if it has none."""
    text, *_ = _PARAMETERS.split(cls.__dict__.get("__doc__") or "", maxsplit=1)
    return inspect.cleandoc(text)


@functools.cache
def field_descriptions(cls: type) -> dict[str, str]:
    """Return the docstrings below the fields of a class and its bases, by field name.

    Python drops these strings, so they are read from the source. Without source the result is empty.
    """
    descriptions: dict[str, str] = {}
    for base in reversed(cls.__mro__[:-1]):
        descriptions.update(_listed_descriptions(base) or _own_descriptions(base))
    return descriptions


def _listed_descriptions(cls: type) -> dict[str, str]:
    """Return the descriptions of the fields that the docstring of a generated class lists."""
    _, *listed = _PARAMETERS.split(cls.__dict__.get("__doc__") or "", maxsplit=1)
    if not listed:
        return {}
    _, *parts = _PARAMETER.split(listed[0])
    return {name: " ".join(text.split()) for name, text in zip(parts[::2], parts[1::2], strict=True)}


@functools.cache
def _own_descriptions(cls: type) -> dict[str, str]:
    try:
        source = textwrap.dedent(inspect.getsource(cls))
        tree = ast.parse(source)
    except (OSError, TypeError, SyntaxError):
        return {}
    body = tree.body[0]
    if not isinstance(body, ast.ClassDef):
        return {}
    return {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in zip(body.body, body.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }
