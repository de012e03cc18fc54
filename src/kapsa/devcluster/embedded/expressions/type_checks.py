"""Warnings about the expressions of a validating policy that do not fit the types of the objects it matches."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from kapsa.devcluster.embedded.expressions import declarations
from kapsa.schemas.cel.declared_types import declare
from kapsa.schemas.cel.expressions import CelCompileError, Program, compile_typed
from kapsa.schemas.cel.language import types
from kapsa.schemas.cel.language.types import Type
from kapsa.schemas.schema import Schema

__all__ = ["CheckedKind", "expression_warnings"]

Object = dict[str, Any]


class CheckedKind(NamedTuple):
    """A kind of the objects that a policy matches, with all of its fields."""

    group: str
    version: str
    kind: str
    schema: Schema

    def type(self) -> Type:
        """Return the type of its objects. As in the real server, its name changes all the time."""
        declared = declare(self.schema, resource=False)
        name = f"{self.kind}{time.time_ns() % 1_000_000_000}"
        return types.DYN if declared is None else declared.type(name)

    def __str__(self) -> str:
        return f"{self.group}/{self.version}, Kind={self.kind}"


def expression_warnings(spec: Object, kinds: list[CheckedKind], params: CheckedKind | None) -> list[Object]:
    """Return the warnings for the status of a policy, in the words of the real server."""
    warnings: list[Object] = []
    environments = [(kind, _variables(spec, kind, params)) for kind in kinds]
    for index, validation in enumerate(spec.get("validations") or ()):
        for field in ("expression", "messageExpression"):
            expression = validation.get(field)
            if not expression:
                continue
            problems = [
                f"{kind}: {problem}\n"
                for kind, variables in environments
                if (problem := _problem(expression, variables))
            ]
            if problems:
                reference = f"spec.validations[{index}].{field}"
                warnings.append({"fieldRef": reference, "warning": "\n".join(problems)})
    return warnings


def _variables(spec: Object, kind: CheckedKind, params: CheckedKind | None) -> dict[str, Type]:
    """Return the types of all variables for objects of a kind."""
    object_type = kind.type()
    declared = {
        "object": object_type,
        "oldObject": object_type,
        "namespaceObject": declarations.NAMESPACE,
        "request": declarations.REQUEST,
        "authorizer": declarations.AUTHORIZER,
    }
    if spec.get("paramKind") is not None:
        declared["params"] = types.DYN if params is None else params.type()
    composed: dict[str, Type] = {}
    declared["variables"] = declarations.variables_type(composed)
    for variable in spec.get("variables") or ():
        program = _compiled(variable["expression"], declared)
        composed[variable["name"]] = types.DYN if program is None else program.root.type
        declared["variables"] = declarations.variables_type(composed)
    return declared


def _compiled(expression: str, variables: dict[str, Type]) -> Program | None:
    try:
        return compile_typed(expression, variables)
    except CelCompileError:
        return None


def _problem(expression: str, variables: dict[str, Type]) -> str:
    try:
        compile_typed(expression, variables)
    except CelCompileError as error:
        return str(error)
    return ""
