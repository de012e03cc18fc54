"""Compilation of the rules in a CustomResourceDefinition against the types of their schema."""

from __future__ import annotations

import re
from typing import Any

from kapsa.schemas import field_errors
from kapsa.schemas.cel.expressions import CelCompileError
from kapsa.schemas.cel.rules import uses_old_self
from kapsa.schemas.cel.types import TypedSchema
from kapsa.schemas.crd_structs import rule_struct
from kapsa.schemas.field_errors import FieldError
from kapsa.schemas.schema import Schema

__all__ = ["validate_rules"]

Raw = dict[str, Any]
_NOT_SUPPORTED = re.compile(r"\b(transformList|transformMap|transformMapEntry|authorizer|format\.\w+)\s*\(")


def validate_rules(rules: list[tuple[Raw, str, str]], root: Raw) -> list[FieldError]:
    """Return the errors in the rules of a schema.

    `rules` are the nodes with rules, each with its path and the path of the list above it whose new items
    cannot be matched to old ones, "" if there is none.
    """
    resource = Schema.from_crd(root)
    types = TypedSchema(resource)
    errors: list[FieldError] = []
    for node, path, uncorrelatable in rules:
        schema = _find(resource, path)
        for index, rule in enumerate(node["x-kubernetes-validations"]):
            where = f"{path}.x-kubernetes-validations[{index}]"
            errors += _check(types, schema, rule, where, uncorrelatable)
    return errors


def _find(resource: Schema, path: str) -> Schema:
    """Return the parsed node at a path such as `...openAPIV3Schema.properties[spec].items`."""
    node: Schema | None = resource
    for name, key in re.findall(r"\.(items|additionalProperties)(?![\w-])|\.properties\[([^\]]*)\]", path):
        if node is None:
            break
        node = node.properties.get(key) if key else (node.items if name == "items" else node.additional)
    return node or Schema()


def _check(
    types: TypedSchema, schema: Schema, rule: Raw, where: str, uncorrelatable: str
) -> list[FieldError]:
    errors: list[FieldError] = []
    optional = bool(rule.get("optionalOldSelf"))
    problem = _problem(types, schema, rule["rule"], "bool", optional=optional)
    if problem:
        errors.append(field_errors.invalid(f"{where}.rule", rule_struct(rule), problem))
    message = rule.get("messageExpression", "")
    if message and not problem:
        problem = _problem(types, schema, message, "string", optional=optional)
        if problem:
            errors.append(field_errors.invalid(f"{where}.messageExpression", rule_struct(rule), problem))
    if uses_old_self(rule["rule"]):
        if uncorrelatable:
            text = (
                f"oldSelf cannot be used on the uncorrelatable portion of the schema within {uncorrelatable}"
            )
            errors.append(field_errors.invalid(f"{where}.rule", rule["rule"], text))
    elif rule.get("optionalOldSelf") is not None:
        text = "may not be set if oldSelf is not used in rule"
        errors.append(field_errors.invalid(f"{where}.optionalOldSelf", rule["optionalOldSelf"], text))
    return errors


def _problem(types: TypedSchema, schema: Schema, expression: str, expected: str, *, optional: bool) -> str:
    """Return the reason why an expression cannot be used, "" if it can."""
    prefix = "" if expected == "bool" else "messageExpression "
    missing = _NOT_SUPPORTED.search(expression)
    if missing is not None:
        return f"{prefix}compilation failed: Kapsa does not support the CEL function {missing[1]}"
    try:
        actual = types.check(schema, expression, optional_old_self=optional)
    except CelCompileError as error:
        return f"{prefix}compilation failed: {error}"
    if actual in (expected, "dyn"):
        return ""
    if expected == "bool":
        return "cel expression must evaluate to a bool"
    return "messageExpression must evaluate to a string"
