"""The variables of rules: `self` and `oldSelf` with the types that their schema declares."""

from __future__ import annotations

import time

from kapsa.schemas.cel.checker import walk
from kapsa.schemas.cel.declared_types import DeclaredType
from kapsa.schemas.cel.expressions import Program, compile_typed
from kapsa.schemas.cel.language import types
from kapsa.schemas.cel.language.syntax import Identifier
from kapsa.schemas.cel.language.types import Type

__all__ = ["compile_for", "uses_old_self", "variables_of"]


def variables_of(declared: DeclaredType, *, optional_old_self: bool) -> dict[str, Type]:
    """Return the types of the variables of a rule."""
    # The name changes all the time, as kube-apiserver's does, so that nobody writes rules with it.
    type_ = declared.type(f"selfType{time.time_ns() % 1_000_000_000}")
    return {"self": type_, "oldSelf": types.optional_of(type_) if optional_old_self else type_}


def compile_for(declared: DeclaredType, expression: str, *, optional_old_self: bool) -> Program:
    """Compile an expression of a rule.

    Raises CelCompileError, with the position and the reason, if it is invalid.
    """
    return compile_typed(expression, variables_of(declared, optional_old_self=optional_old_self))


def uses_old_self(program: Program) -> bool:
    """Return whether an expression refers to `oldSelf`."""
    return any(isinstance(node, Identifier) and node.name == "oldSelf" for node in walk(program.root))
