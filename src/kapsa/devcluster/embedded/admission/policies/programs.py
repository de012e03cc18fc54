"""The compiled expressions of one policy."""

from __future__ import annotations

from typing import Any

import msgspec

from kapsa.devcluster.embedded.expressions.compilation import (
    AUDIT,
    CONDITION,
    MESSAGE,
    PolicyCompileError,
    PolicyCompiler,
    Purpose,
    mutation,
)
from kapsa.schemas.cel.expressions import Program

__all__ = ["CompiledExpression", "PolicyPrograms", "compile_conditions"]

Object = dict[str, Any]
_EXPRESSIONS = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}


class CompiledExpression(msgspec.Struct, frozen=True):
    """An expression with its program, or with the reason why it has none."""

    text: str
    program: Program | None = None
    problem: str = ""


class PolicyPrograms:
    """The expressions of one policy, compiled once for all requests."""

    def __init__(self, spec: Object) -> None:
        params = spec.get("paramKind") is not None
        compiler = PolicyCompiler(params=params, composes=True)
        self.variables: dict[str, CompiledExpression] = {}
        for each in spec.get("variables") or ():
            self.variables[each["name"]] = _variable(compiler, each["name"], each["expression"])
        self.conditions = compile_conditions(spec.get("matchConditions") or (), params=params)
        self.validations = [
            (each, _compile(compiler, each["expression"], CONDITION))
            for each in spec.get("validations") or ()
        ]
        self.messages = [
            _compile(compiler, each["messageExpression"], MESSAGE) if each.get("messageExpression") else None
            for each in spec.get("validations") or ()
        ]
        self.annotations = [
            _compile(compiler, each["valueExpression"].strip(), AUDIT)
            for each in spec.get("auditAnnotations") or ()
        ]
        self.mutations = [_mutation(compiler, each) for each in spec.get("mutations") or ()]


def compile_conditions(conditions: Any, *, params: bool) -> list[CompiledExpression]:
    """Compile the match conditions of a policy or a webhook."""
    compiler = PolicyCompiler(params=params, composes=False)
    return [_compile(compiler, each["expression"], CONDITION) for each in conditions]


def _mutation(compiler: PolicyCompiler, each: Object) -> tuple[str, CompiledExpression]:
    """Return the patch type of a mutation, and its expression."""
    kind = each["patchType"]
    expression = each[_EXPRESSIONS[kind]]["expression"]
    return kind, _compile(compiler, expression, mutation(kind))


def _variable(compiler: PolicyCompiler, name: str, expression: str) -> CompiledExpression:
    try:
        return CompiledExpression(expression, compiler.add_variable(name, expression))
    except PolicyCompileError as error:
        return CompiledExpression(expression, problem=str(error))


def _compile(compiler: PolicyCompiler, expression: str, purpose: Purpose) -> CompiledExpression:
    try:
        return CompiledExpression(expression, compiler.compile(expression, purpose))
    except PolicyCompileError as error:
        return CompiledExpression(expression, problem=str(error))
