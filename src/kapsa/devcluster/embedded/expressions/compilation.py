"""Compilation of the expressions of an admission policy, each with the variables that it may use."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kapsa.devcluster.embedded.expressions import declarations
from kapsa.schemas.cel.expressions import CelCompileError, Program, compile_typed
from kapsa.schemas.cel.language import types
from kapsa.schemas.cel.language.types import Type
from kapsa.schemas.cel.literals import failing_constant
from kapsa.schemas.cel.patch_types import JSON_PATCHES, OBJECT, PATCH_FUNCTIONS, patch_type

__all__ = ["AUDIT", "CONDITION", "MESSAGE", "PolicyCompileError", "PolicyCompiler", "Purpose", "mutation"]


class PolicyCompileError(ValueError):
    """An expression that cannot be used. The message is the real server's, without its prefix."""


class Purpose(msgspec.Struct, frozen=True):
    """The kind of an expression: what it may return, and what it may use."""

    returns: tuple[Type, ...] = ()
    """The types that it may return; empty for any."""
    authorizer: bool = True
    constructs: bool = False
    """True if it may construct objects and patches."""


CONDITION = Purpose(returns=(types.BOOL,))
MESSAGE = Purpose(returns=(types.STRING,), authorizer=False)
AUDIT = Purpose(returns=(types.STRING, types.NULL))
_VARIABLE = Purpose()
_MUTATIONS = {
    "ApplyConfiguration": Purpose(returns=(OBJECT,), constructs=True),
    "JSONPatch": Purpose(returns=(JSON_PATCHES,), constructs=True),
}


def mutation(patch_type: str) -> Purpose:
    """Return the purpose of a mutation of this patch type."""
    return _MUTATIONS[patch_type]


class PolicyCompiler:
    """The compiler of one policy. A variable is visible to the expressions that are compiled after it."""

    def __init__(self, *, params: bool, composes: bool) -> None:
        """`params`: the policy has parameters. `composes`: its expressions may use `variables`."""
        self._types = {
            "object": types.DYN,
            "oldObject": types.DYN,
            "namespaceObject": declarations.NAMESPACE,
            "request": declarations.REQUEST,
        }
        if params:
            self._types["params"] = types.DYN
        self._variables: dict[str, Type] | None = {} if composes else None

    def add_variable(self, name: str, expression: str) -> Program:
        """Compile a variable. One that does not compile is visible, too, so that it is reported once."""
        assert self._variables is not None
        self._variables[name] = types.DYN
        program = self.compile(expression, _VARIABLE)
        self._variables[name] = program.root.type
        return program

    def compile(self, expression: str, purpose: Purpose) -> Program:
        """Compile an expression. Raises PolicyCompileError."""
        visible = dict(self._types)
        if purpose.authorizer:
            visible["authorizer"] = declarations.AUTHORIZER
            visible["authorizer.requestResource"] = declarations.RESOURCE_CHECK
        if self._variables is not None:
            visible["variables"] = declarations.variables_type(self._variables)
        try:
            if purpose.constructs:
                program = compile_typed(expression, visible, PATCH_FUNCTIONS, patch_type)
            else:
                program = compile_typed(expression, visible)
        except CelCompileError as error:
            raise PolicyCompileError(f"compilation failed: {error}") from None
        _check_result(program.root.type, purpose.returns)
        if failure := failing_constant(program.root):
            raise PolicyCompileError(f"program instantiation failed: {failure}")
        return program


def _check_result(actual: Type, returns: Sequence[Type]) -> None:
    if not returns or any(actual.is_exactly(one) for one in returns):
        return
    shown = [_shown(one) for one in returns]
    expected = shown[0] if len(shown) == 1 else f"one of [{' '.join(shown)}]"
    raise PolicyCompileError(f"must evaluate to {expected} but got {_shown(actual)}")


def _shown(type_: Type) -> str:
    """Return a type as Go prints it, which differs from the checker's words for null and times."""
    inner = ", ".join(map(_shown, type_.params))
    return f"{type_.type_name}({inner})" if inner else type_.type_name
