"""Declarations of functions: what they take, what they return, and what computes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kapsa.schemas.cel.language.types import Type, parse_type

__all__ = ["COMPARABLE", "Functions", "Overload", "function", "method"]

COMPARABLE = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
"""The types whose values have an order."""


class Overload:
    """One signature of a function."""

    __slots__ = ("compute", "generic", "id", "is_method", "params", "result")

    def __init__(
        self,
        id_: str,
        params: tuple[Type, ...],
        result: Type,
        compute: Callable[..., Any],
        *,
        is_method: bool,
    ) -> None:
        self.id = id_
        """cel-go's name of the signature, by which its cost is determined."""
        self.params = params
        """The types of the arguments; the first is the receiver of a method."""
        self.result = result
        self.compute = compute
        self.is_method = is_method
        self.generic = any(_has_parameter(type_) for type_ in (*params, result))


Functions = dict[str, list[Overload]]


def _has_parameter(type_: Type) -> bool:
    return type_.kind == "param" or any(map(_has_parameter, type_.params))


def function(id_: str, params: str, result: str, compute: Callable[..., Any]) -> Overload:
    """Declare a function; `params` are types separated by semicolons."""
    return Overload(id_, _types(params), parse_type(result), compute, is_method=False)


def method(id_: str, params: str, result: str, compute: Callable[..., Any]) -> Overload:
    """Declare a method; the first of the `params` is its receiver."""
    return Overload(id_, _types(params), parse_type(result), compute, is_method=True)


def _types(params: str) -> tuple[Type, ...]:
    return tuple(parse_type(param.strip()) for param in params.split(";") if param.strip())
