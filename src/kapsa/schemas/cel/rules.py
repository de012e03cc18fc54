"""Evaluation of the rules in `x-kubernetes-validations` on a value and the one it replaces."""

from __future__ import annotations

import re
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from kapsa.schemas import field_errors
from kapsa.schemas.cel.expressions import (
    CelCompileError,
    CelEvaluationError,
    Program,
    compile_expression,
)
from kapsa.schemas.cel.values import value_of
from kapsa.schemas.field_errors import FieldError
from kapsa.schemas.list_types import correlate
from kapsa.schemas.schema import Schema, ValidationRule

__all__ = ["HAS_OLD", "OLD", "check_rules", "uses_old_self", "with_optional_old_self"]

_MAX_MESSAGE = 5120
_STRING = re.compile(r"""r?("{3}.*?"{3}|'{3}.*?'{3}|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')""", re.DOTALL)
_OLD_SELF = re.compile(r"(?<![.\w])oldSelf\b")
_ABSENT: Any = object()
OLD, HAS_OLD = "old_self_value", "old_self_given"
"""The variables from which an optional oldSelf is made."""


class CompiledRule(msgspec.Struct, frozen=True):
    """A rule with its programs."""

    rule: ValidationRule
    program: Program
    message: Program | None
    transition: bool
    """True if the rule uses the old value, and so runs on updates only."""

    @property
    def text(self) -> str:
        """The rule's message if it has one, otherwise its expression."""
        return (self.rule.message or self.rule.rule).strip()


_compiled: WeakKeyDictionary[Schema, list[CompiledRule | FieldError]] = WeakKeyDictionary()
_below: WeakKeyDictionary[Schema, bool] = WeakKeyDictionary()


def uses_old_self(expression: str) -> bool:
    """Return whether an expression uses `oldSelf` outside of its string literals."""
    return _OLD_SELF.search(_STRING.sub('""', expression)) is not None


def with_optional_old_self(expression: str) -> str:
    """Return an expression in which `oldSelf` is an optional.

    The binding does not accept an optional value as a variable, so the expression makes one and binds it with
    a macro. The original stays on lines of its own, so that messages do not show what surrounds it.
    """
    return f"[{HAS_OLD} ? optional.of({OLD}) : optional.none()].map(oldSelf,\n{expression}\n)[0]"


def compile_rule(rule: ValidationRule) -> CompiledRule:
    """Compile a rule.

    Raises CelCompileError if its expression, or that of its message, does not compile.
    """
    transition = uses_old_self(rule.rule)
    expression, message = rule.rule, rule.message_expression
    # Values are dynamic here: their types were checked with the CRD.
    variables: tuple[tuple[str, str], ...] = (("self", "dyn"), ("oldSelf", "dyn"))
    if rule.optional_old_self:
        variables = (("self", "dyn"), (OLD, "dyn"), (HAS_OLD, "bool"))
        expression = with_optional_old_self(expression)
        message = with_optional_old_self(message) if message else ""
    return CompiledRule(
        rule,
        compile_expression(expression, variables),
        compile_expression(message, variables) if message else None,
        transition,
    )


def check_rules(schema: Schema, obj: dict[str, Any], old: dict[str, Any] | None) -> list[FieldError]:
    """Return the errors that the rules report; an update does not fail on values that it leaves unchanged."""
    errors: list[FieldError] = []
    _walk(schema, obj, _ABSENT if old is None else old, "", errors, unchanged=False)
    return errors


def _walk(
    schema: Schema, value: Any, old: Any, path: str, errors: list[FieldError], *, unchanged: bool
) -> None:
    if value is None or not _has_rules_below(schema):
        return
    if old is None:
        old = _ABSENT
    unchanged = unchanged or (old is not _ABSENT and value == old)
    if schema.rules:
        _run(schema, value, old, path, errors, unchanged=unchanged)
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        for key, item in value.items():
            child = schema.properties.get(key)
            if child is not None:
                where = f"{path}.{key}" if path else key
            elif schema.additional is not None:
                child, where = schema.additional, f"{path}[{key}]"
            else:
                continue
            _walk(child, item, before.get(key, _ABSENT), where, errors, unchanged=unchanged)
    elif isinstance(value, list) and schema.items is not None:
        find = correlate(schema, old)
        for index, item in enumerate(value):
            previous = _ABSENT if find is None else find(item, _ABSENT)
            _walk(schema.items, item, previous, f"{path}[{index}]", errors, unchanged=unchanged)


def _has_rules_below(schema: Schema) -> bool:
    cached = _below.get(schema)
    if cached is None:
        _below[schema] = False  # ends the recursion in a cycle
        children = [*schema.properties.values(), schema.items, schema.additional]
        cached = bool(schema.rules) or any(_has_rules_below(child) for child in children if child is not None)
        _below[schema] = cached
    return cached


def _rules_of(schema: Schema) -> list[CompiledRule | FieldError]:
    compiled = _compiled.get(schema)
    if compiled is None:
        compiled = []
        for rule in schema.rules:
            try:
                compiled.append(compile_rule(rule))
            except CelCompileError as error:
                compiled.append(field_errors.invalid("", schema.type, f"rule compile error: {error}"))
        _compiled[schema] = compiled
    return compiled


def _run(
    schema: Schema, value: Any, old: Any, path: str, errors: list[FieldError], *, unchanged: bool
) -> None:
    here = path or "<nil>"
    given = old is not _ABSENT
    self_value = value_of(schema, value)
    old_value = value_of(schema, old) if given else self_value
    variables = {"self": self_value, "oldSelf": old_value, OLD: old_value, HAS_OLD: given}
    for compiled in _rules_of(schema):
        if isinstance(compiled, FieldError):
            errors.append(FieldError(compiled.reason, here, compiled.value, compiled.detail))
            continue
        if compiled.transition and not given and not compiled.rule.optional_old_self:
            continue
        try:
            holds = compiled.program.evaluate(variables)
        except CelEvaluationError as error:
            errors.append(field_errors.invalid(here, schema.type, _failure(error, compiled)))
            continue
        if holds is not True and (compiled.transition or not unchanged):
            errors.append(_violation(schema, compiled, value, path, variables))


def _failure(error: CelEvaluationError, compiled: CompiledRule) -> str:
    if str(error).startswith("no such overload"):
        return (
            f"'{error}': call arguments did not match a supported operator, function or macro signature "
            f"for rule: {compiled.text}"
        )
    return f"{error} evaluating rule: {compiled.text}"


def _violation(
    schema: Schema, compiled: CompiledRule, value: Any, path: str, variables: dict[str, Any]
) -> FieldError:
    rule = compiled.rule
    where = _field(path, rule.field_path) or "<nil>"
    detail = _message(compiled, variables) or rule.message.strip() or f"failed rule: {compiled.text}"
    if rule.reason == field_errors.FORBIDDEN:
        return field_errors.forbidden(where, detail)
    if rule.reason == field_errors.REQUIRED:
        return field_errors.required(where, detail)
    shown = field_errors.OMITTED if schema.type in ("object", "array") else value
    if rule.reason == field_errors.DUPLICATE:
        return field_errors.duplicate(where, shown)
    return field_errors.invalid(where, shown, detail)


def _field(path: str, field_path: str) -> str:
    """Return the path of the field that a rule is about: `.a['b']` below `path`."""
    below = re.sub(r"\['([^']*)'\]", r"[\1]", field_path)
    if not path:
        return below.removeprefix(".")
    return f"{path}{below}"


def _message(compiled: CompiledRule, variables: dict[str, Any]) -> str:
    """Return the result of the rule's messageExpression, "" if it has none or the result cannot be shown."""
    if compiled.message is None:
        return ""
    try:
        message = compiled.message.evaluate(variables)
    except CelEvaluationError:
        return ""
    if not isinstance(message, str) or not message.strip() or "\n" in message or len(message) > _MAX_MESSAGE:
        return ""
    return message.strip()
