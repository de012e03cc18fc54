"""Rules of custom resources (`x-kubernetes-validations`), run against a value and the one it replaces."""

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
"""Variables behind an optional oldSelf."""


class CompiledRule(msgspec.Struct, frozen=True):
    """A rule with its programs."""

    rule: ValidationRule
    program: Program
    message: Program | None
    transition: bool
    """Whether it compares with the old value, and so runs on updates only."""

    @property
    def text(self) -> str:
        """How errors call the rule: by its message, or by itself."""
        return (self.rule.message or self.rule.rule).strip()


_compiled: WeakKeyDictionary[Schema, list[CompiledRule | FieldError]] = WeakKeyDictionary()
_below: WeakKeyDictionary[Schema, bool] = WeakKeyDictionary()


def uses_old_self(expression: str) -> bool:
    """Whether an expression names `oldSelf` outside of its string literals."""
    return _OLD_SELF.search(_STRING.sub('""', expression)) is not None


def with_optional_old_self(expression: str) -> str:
    """An expression in which `oldSelf` is an optional.

    The binding takes no optional value from outside, so one is made inside and bound by a macro. The expression
    keeps lines of its own: messages about it show nothing of what is around.
    """
    return f"[{HAS_OLD} ? optional.of({OLD}) : optional.none()].map(oldSelf,\n{expression}\n)[0]"


def compile_rule(rule: ValidationRule) -> CompiledRule:
    """A rule, ready to run.

    :raises CelCompileError: when its expression, or that of its message, does not compile.
    """
    transition = uses_old_self(rule.rule)
    expression, message = rule.rule, rule.message_expression
    # Values are dynamic here: the definition's own check has looked at their types.
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
    """Everything the rules find wrong; what an update leaves unchanged is forgiven."""
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
    known = _below.get(schema)
    if known is None:
        _below[schema] = False  # a cycle adds nothing of its own
        children = [*schema.properties.values(), schema.items, schema.additional]
        known = bool(schema.rules) or any(_has_rules_below(child) for child in children if child is not None)
        _below[schema] = known
    return known


def _rules_of(schema: Schema) -> list[CompiledRule | FieldError]:
    found = _compiled.get(schema)
    if found is None:
        found = []
        for rule in schema.rules:
            try:
                found.append(compile_rule(rule))
            except CelCompileError as error:
                found.append(field_errors.invalid("", schema.type, f"rule compile error: {error}"))
        _compiled[schema] = found
    return found


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
            errors.append(_refusal(schema, compiled, value, path, variables))


def _failure(error: CelEvaluationError, compiled: CompiledRule) -> str:
    if str(error).startswith("no such overload"):
        return (
            f"'{error}': call arguments did not match a supported operator, function or macro signature "
            f"for rule: {compiled.text}"
        )
    return f"{error} evaluating rule: {compiled.text}"


def _refusal(
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
    """The path of the field a rule is about: `.a['b']` below `path`."""
    below = re.sub(r"\['([^']*)'\]", r"[\1]", field_path)
    if not path:
        return below.removeprefix(".")
    return f"{path}{below}"


def _message(compiled: CompiledRule, variables: dict[str, Any]) -> str:
    """The rule's own message; "" when it has none, or none that can be shown."""
    if compiled.message is None:
        return ""
    try:
        found = compiled.message.evaluate(variables)
    except CelEvaluationError:
        return ""
    if not isinstance(found, str) or not found.strip() or "\n" in found or len(found) > _MAX_MESSAGE:
        return ""
    return found.strip()
