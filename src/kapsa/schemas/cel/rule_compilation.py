"""Compilation of the rules in a CustomResourceDefinition, against the types and the bounds of their schema."""

from __future__ import annotations

import re
from typing import Any

from kapsa.schemas import field_errors
from kapsa.schemas.cel.costs.estimates import MAX
from kapsa.schemas.cel.costs.estimator import estimate
from kapsa.schemas.cel.declared_types import MAX_REQUEST, DeclaredType, declare
from kapsa.schemas.cel.expressions import CelCompileError, Program
from kapsa.schemas.cel.literals import failing_constant
from kapsa.schemas.cel.rule_types import compile_for, uses_old_self
from kapsa.schemas.crd_structs import rule_struct
from kapsa.schemas.field_errors import FieldError
from kapsa.schemas.rule_nodes import RuleNode
from kapsa.schemas.schema import Schema

__all__ = ["validate_rules"]

Raw = dict[str, Any]
_RULE_LIMIT = 10_000_000
_SCHEMA_LIMIT = 100_000_000
_ADVICE = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength "
    "where arrays, maps, and strings are declared)"
)
_NO_TYPES = (
    "internal error: failed to construct type information for x-kubernetes-validations rules: "
    "unable to convert structural schema to CEL declarations"
)


def validate_rules(nodes: list[RuleNode], root: Raw, path: str) -> list[FieldError]:
    """Return the errors in the rules of a schema at `path`."""
    resource = Schema.from_crd(root)
    compilation = _Compilation()
    for node in nodes:
        schema = _find(resource, node.path)
        declared = declare(schema, resource=schema is resource or schema.embedded_resource)
        if declared is None:
            where = f"{node.path}.x-kubernetes-validations"
            compilation.errors.append(FieldError(field_errors.INTERNAL, where, "", _NO_TYPES))
            continue
        for index, rule in enumerate(node.raw["x-kubernetes-validations"]):
            where = f"{node.path}.x-kubernetes-validations[{index}]"
            compilation.check(declared, rule, where, node)
    return [*compilation.errors, *compilation.total_errors(path)]


def _find(resource: Schema, path: str) -> Schema:
    """Return the parsed node at a path such as `...openAPIV3Schema.properties[spec].items`."""
    node: Schema | None = resource
    for name, key in re.findall(r"\.(items|additionalProperties)(?![\w-])|\.properties\[([^\]]*)\]", path):
        if node is None:
            break
        node = node.properties.get(key) if key else (node.items if name == "items" else node.additional)
    return node or Schema()


class _Compilation:
    """The errors in the rules of one schema, and what the rules cost together."""

    def __init__(self) -> None:
        self.errors: list[FieldError] = []
        self._total = 0
        self._expensive: list[tuple[int, str]] = []

    def check(self, declared: DeclaredType, rule: Raw, where: str, node: RuleNode) -> None:
        optional = bool(rule.get("optionalOldSelf"))
        program, problem = _compile(declared, rule["rule"], "bool", optional=optional)
        if program is not None:
            cardinality = node.cardinality
            if cardinality is None:
                cardinality = MAX_REQUEST // (declared.min_size + 1)
            cost = min(estimate(program.root, declared) * cardinality, MAX)
            self._observe(f"{where}.rule", cost, "estimated rule cost")
        if problem:
            self.errors.append(field_errors.invalid(f"{where}.rule", rule_struct(rule), problem))
        elif rule.get("messageExpression"):
            self._check_message(declared, rule, where, optional=optional)
        self._check_old_self(program, rule, where, node.uncorrelatable)

    def _check_message(self, declared: DeclaredType, rule: Raw, where: str, *, optional: bool) -> None:
        field = f"{where}.messageExpression"
        program, problem = _compile(declared, rule["messageExpression"], "string", optional=optional)
        if program is None:
            self.errors.append(field_errors.invalid(field, rule_struct(rule), problem))
            return
        self._observe(field, estimate(program.root, declared), "estimated messageExpression cost")

    def _check_old_self(self, program: Program | None, rule: Raw, where: str, uncorrelatable: str) -> None:
        if program is not None and uses_old_self(program):
            if uncorrelatable:
                text = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {uncorrelatable}"
                self.errors.append(field_errors.invalid(f"{where}.rule", rule["rule"], text))
        elif rule.get("optionalOldSelf") is not None:
            text = "may not be set if oldSelf is not used in rule"
            field = f"{where}.optionalOldSelf"
            self.errors.append(field_errors.invalid(field, rule["optionalOldSelf"], text))

    def _observe(self, field: str, cost: int, name: str) -> None:
        if cost > _RULE_LIMIT:
            self.errors.append(field_errors.forbidden(field, _over_budget(name, cost, _RULE_LIMIT)))
        self._total = min(self._total + cost, MAX)
        if cost >= _SCHEMA_LIMIT // 100:
            self._expensive.append((cost, field))

    def total_errors(self, path: str) -> list[FieldError]:
        """Return the errors about the cost of all rules together, with the most expensive ones."""
        if self._total <= _SCHEMA_LIMIT:
            return []
        most = sorted(self._expensive, key=lambda entry: -entry[0])[:4]
        text = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
        name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        return [
            *(field_errors.forbidden(field, text) for _, field in most),
            field_errors.forbidden(path, _over_budget(name, self._total, _SCHEMA_LIMIT)),
        ]


def _over_budget(name: str, cost: int, limit: int) -> str:
    factor = cost / limit
    shown = f"{factor:f}x" if factor < 1.5 else f"{factor:.1f}x"
    if factor > 100:
        shown = "more than 100x"
    return f"{name} exceeds budget by factor of {shown} {_ADVICE}"


def _compile(
    declared: DeclaredType, expression: str, expected: str, *, optional: bool
) -> tuple[Program | None, str]:
    """Return the program, or the reason why the expression cannot be used."""
    prefix = "" if expected == "bool" else "messageExpression "
    try:
        program = compile_for(declared, expression, optional_old_self=optional)
    except CelCompileError as error:
        return None, f"{prefix}compilation failed: {error}"
    if program.result == expected:
        failure = failing_constant(program.root)
        if failure:
            return None, f"{prefix or 'program '}instantiation failed: {failure}"
        return program, ""
    if expected == "bool":
        return None, "cel expression must evaluate to a bool"
    return None, "messageExpression must evaluate to a string"
