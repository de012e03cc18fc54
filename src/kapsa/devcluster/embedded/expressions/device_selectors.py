"""Compilation of the expressions that select devices, in classes and claims."""

from __future__ import annotations

from kapsa.schemas.cel.declared_types import DeclaredType, Field
from kapsa.schemas.cel.expressions import CelCompileError, compile_typed
from kapsa.schemas.cel.language import types
from kapsa.schemas.cel.language.types import Type, parse_type

__all__ = ["selector_problem"]


def _by_domain(value: Type) -> Type:
    return types.map_of(types.STRING, types.map_of(types.STRING, value))


_FIELDS = {
    "driver": types.STRING,
    "allowMultipleAllocations": types.BOOL,
    "attributes": _by_domain(types.DYN),
    "capacity": _by_domain(parse_type("kubernetes.Quantity")),
}
_DEVICE = types.struct(
    "kubernetes.DRADevice",
    DeclaredType(fields={name: Field(name, DeclaredType(scalar=type_)) for name, type_ in _FIELDS.items()}),
)


def selector_problem(expression: str) -> str:
    """Return why an expression cannot select devices, in the real server's words; empty if it can."""
    try:
        program = compile_typed(expression, {"device": _DEVICE})
    except CelCompileError as error:
        # An empty expression has no position, and no line to show.
        text = str(error) if expression else str(error).partition("\n")[0].replace(":1:1:", ":1:0:")
        return f"compilation failed: {text}"
    actual = program.root.type
    if actual.is_exactly(types.BOOL) or actual.is_exactly(types.DYN):
        return ""
    return f"must evaluate to bool or the unknown type, not {actual.type_name}"
