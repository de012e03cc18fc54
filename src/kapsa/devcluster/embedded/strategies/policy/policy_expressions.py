"""The expressions of admission policies and webhooks, compiled when they are written."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

from kapsa.devcluster.embedded.expressions.compilation import (
    AUDIT,
    CONDITION,
    MESSAGE,
    PolicyCompileError,
    PolicyCompiler,
    Purpose,
    mutation,
)
from kapsa.devcluster.embedded.kinds import names
from kapsa.devcluster.embedded.strategies.generic.builtin import Object
from kapsa.schemas.cel.language.syntax import RESERVED
from kapsa.schemas.field_errors import FieldError, duplicate, invalid, not_supported, required, too_many

__all__ = ["PolicyCompiler", "audit_annotations", "match_conditions", "mutations", "validations", "variables"]

_MOST_CONDITIONS = 64
_MOST_ANNOTATIONS = 20
_LONGEST_ANNOTATION = 5 * 1024
_REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_PATCHES = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}
_IDENTIFIER = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*")


def match_conditions(conditions: Sequence[Object], path: str, *, params: bool) -> list[FieldError]:
    """Return the errors in match conditions, which cannot use variables."""
    errors: list[FieldError] = []
    if len(conditions) > _MOST_CONDITIONS:
        errors.append(too_many(path, len(conditions), _MOST_CONDITIONS))
    compiler = PolicyCompiler(params=params, composes=False)
    used: set[str] = set()
    for index, condition in enumerate(conditions):
        where, name = f"{path}[{index}]", condition.get("name") or ""
        expression = (condition.get("expression") or "").strip()
        if expression:
            errors += _compiled(compiler, expression, CONDITION, f"{where}.expression")
        else:
            errors.append(required(f"{where}.expression"))
        if not name:
            errors.append(required(f"{where}.name"))
            continue
        errors += [invalid(f"{where}.name", name, problem) for problem in names.label_key(name)]
        if name in used:
            errors.append(duplicate(f"{where}.name", name))
        used.add(name)
    return errors


def variables(compiler: PolicyCompiler, given: Sequence[Object], path: str) -> list[FieldError]:
    """Return the errors in the variables of a policy, and declare them to the expressions that follow."""
    errors: list[FieldError] = []
    for index, variable in enumerate(given):
        where, name = f"{path}[{index}]", variable.get("name") or ""
        if not name.strip():
            errors.append(required(f"{where}.name", "name is not specified"))
        elif not _IDENTIFIER.fullmatch(name) or name in RESERVED:
            errors.append(invalid(f"{where}.name", name, "must be a valid CEL identifier"))
        expression = variable.get("expression") or ""
        if not expression.strip():
            errors.append(required(f"{where}.expression", "expression is not specified"))
            continue
        errors += _attempt(
            partial(compiler.add_variable, name, expression), expression, f"{where}.expression"
        )
    return errors


def validations(compiler: PolicyCompiler, given: Sequence[Object], path: str) -> list[FieldError]:
    """Return the errors in the validations of a policy."""
    return [
        error
        for index, validation in enumerate(given)
        for error in _validation(compiler, validation, f"{path}[{index}]")
    ]


def _validation(compiler: PolicyCompiler, validation: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    expression = validation.get("expression") or ""
    if expression.strip():
        errors += _compiled(compiler, expression, CONDITION, f"{path}.expression")
    else:
        errors.append(required(f"{path}.expression", "expression is not specified"))
    text = validation.get("messageExpression") or ""
    if text.strip():
        errors += _compiled(compiler, text, MESSAGE, f"{path}.messageExpression")
    elif text:
        errors.append(invalid(f"{path}.messageExpression", text, "must be non-empty if specified"))
    message = validation.get("message") or ""
    if message and not message.strip():
        errors.append(invalid(f"{path}.message", message, "must be non-empty if specified"))
    elif re.search(r"[\n\r]", message.strip()):
        errors.append(invalid(f"{path}.message", message, "must not contain line breaks"))
    reason = validation.get("reason")
    if reason is not None and reason not in _REASONS:
        errors.append(not_supported(f"{path}.reason", reason, _REASONS))
    return errors


def audit_annotations(
    compiler: PolicyCompiler, policy: str, given: Sequence[Object], path: str
) -> list[FieldError]:
    """Return the errors in the audit annotations of a policy."""
    errors: list[FieldError] = []
    if len(given) > _MOST_ANNOTATIONS:
        shown = [
            {"Key": one.get("key") or "", "ValueExpression": one.get("valueExpression") or ""}
            for one in given
        ]
        errors.append(invalid(path, shown, f"must not have more than {_MOST_ANNOTATIONS} auditAnnotations"))
    used: set[str] = set()
    for index, annotation in enumerate(given):
        where, key = f"{path}[{index}]", annotation.get("key") or ""
        qualified = f"{policy}/{key}"
        if policy:
            errors += [invalid(f"{where}.key", qualified, problem) for problem in names.label_key(qualified)]
        else:
            errors.append(invalid(f"{where}.key", key, "requires metadata.name be non-empty"))
        expression = annotation.get("valueExpression") or ""
        field = f"{where}.valueExpression"
        if not expression.strip():
            errors.append(required(field, "valueExpression is not specified"))
        elif len(expression.strip().encode()) > _LONGEST_ANNOTATION:
            errors.append(required(field, f"must not exceed {_LONGEST_ANNOTATION} bytes in length"))
        else:
            errors += _attempt(partial(compiler.compile, expression.strip(), AUDIT), expression, field)
        if key in used:
            errors.append(duplicate(f"{where}.key", key))
        used.add(key)
    return errors


def mutations(compiler: PolicyCompiler, given: Sequence[Object], path: str) -> list[FieldError]:
    """Return the errors in the mutations of a policy."""
    if not given:
        return [required(path, "mutations must contain at least one item")]
    return [
        error for index, each in enumerate(given) for error in _mutation(compiler, each, f"{path}[{index}]")
    ]


def _mutation(compiler: PolicyCompiler, each: Object, path: str) -> list[FieldError]:
    kind = each.get("patchType") or ""
    if not kind:
        return [required(f"{path}.patchType")]
    if kind not in _PATCHES:
        return [not_supported(f"{path}.patchType", kind, sorted(_PATCHES))]
    errors: list[FieldError] = []
    for patch_type, field in _PATCHES.items():
        patch = each.get(field)
        if patch_type != kind:
            if patch is not None:
                detail = f"must not be specified when patchType is {kind}"
                errors.append(invalid(f"{path}.{field}", f"{{{field}}}", detail))
        elif patch is None:
            errors.append(required(f"{path}.{field}", f"must be specified when patchType is {kind}"))
        elif expression := (patch.get("expression") or "").strip():
            errors += _compiled(compiler, expression, mutation(kind), f"{path}.{field}.expression")
        else:
            errors.append(required(f"{path}.{field}.expression"))
    return errors


def _compiled(compiler: PolicyCompiler, expression: str, purpose: Purpose, field: str) -> list[FieldError]:
    return _attempt(partial(compiler.compile, expression, purpose), expression, field)


def _attempt(compile_: Callable[[], object], expression: str, field: str) -> list[FieldError]:
    try:
        compile_()
    except PolicyCompileError as error:
        return [invalid(field, expression, str(error))]
    return []
