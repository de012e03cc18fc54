"""Evaluation of the rules in `x-kubernetes-validations` on a value and the one it replaces."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from kapsa.schemas import field_errors
from kapsa.schemas.cel.conversion import value_of
from kapsa.schemas.cel.costs.estimator import estimate
from kapsa.schemas.cel.declared_types import DeclaredType, declare
from kapsa.schemas.cel.expressions import CelCompileError, CelEvaluationError, CostExceededError, Program
from kapsa.schemas.cel.rule_types import compile_for, uses_old_self
from kapsa.schemas.cel.values import NONE, Optional
from kapsa.schemas.field_errors import FieldError
from kapsa.schemas.list_types import correlate
from kapsa.schemas.schema import Schema, ValidationRule

__all__ = ["check_default", "check_rules"]

_MAX_MESSAGE = 5120
_CALL_LIMIT = 1_000_000
"""The most that one evaluation may cost."""
_OBJECT_LIMIT = 10_000_000
"""The most that all rules of an object may cost together."""
_NO_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"
_FIELD_PART = re.compile(r"\.([^.\[\]]+)|\['((?:[^'\\]|\\.)*)'\]")
_ABSENT: Any = object()


class CompiledRule(msgspec.Struct, frozen=True):
    """A rule with its programs."""

    rule: ValidationRule
    program: Program
    message: Program | None
    transition: bool
    """True if the rule uses the old value, and so runs on updates only."""
    most_cost: int
    """The most that one evaluation of the rule can cost."""

    @property
    def text(self) -> str:
        """The rule's message if it has one, otherwise its expression."""
        return (self.rule.message or self.rule.rule).strip()


_compiled: WeakKeyDictionary[Schema, dict[bool, list[CompiledRule | FieldError]]] = WeakKeyDictionary()
_below: WeakKeyDictionary[Schema, bool] = WeakKeyDictionary()


class _MeteringNeededError(Exception):
    """The rules might cost more than an object may, so they must run with a meter."""


class _BudgetExceededError(Exception):
    """The rules cost more than they may; what they reported so far is the result."""


class _Budget:
    """The cost that the rules of an object have left: by their estimates, or by their actual costs if metered."""

    def __init__(self, *, metered: bool) -> None:
        self._left = _OBJECT_LIMIT
        self.metered = metered

    def evaluate(self, program: Program, variables: dict[str, Any], most_cost: int) -> Any:
        """Return the result of a rule's program, and deduct its cost."""
        if not self.metered:
            self._left -= most_cost
            if self._left < 0 or most_cost > _CALL_LIMIT:
                raise _MeteringNeededError
            return program.evaluate(variables)
        if self._left <= 0:
            raise _BudgetExceededError
        value, cost = program.evaluate_metered(variables, _CALL_LIMIT)
        if cost > self._left:
            raise _BudgetExceededError
        self._left -= cost
        return value


def compile_rule(rule: ValidationRule, declared: DeclaredType) -> CompiledRule:
    """Compile a rule for values of a declared type.

    Raises CelCompileError if its expression does not compile.
    """
    optional = rule.optional_old_self
    program = compile_for(declared, rule.rule, optional_old_self=optional)
    message: Program | None = None
    if rule.message_expression:
        # The CRD was checked, so only a schema from elsewhere can have a wrong one; the rule has a text then.
        with suppress(CelCompileError):
            message = compile_for(declared, rule.message_expression, optional_old_self=optional)
    return CompiledRule(rule, program, message, uses_old_self(program), estimate(program.root, declared))


def check_rules(
    schema: Schema, obj: dict[str, Any], old: dict[str, Any] | None, warnings: list[str] | None = None
) -> list[FieldError]:
    """Return the errors that the rules report.

    An update does not fail on values that it leaves unchanged; the rules that they break become `warnings`.
    """
    before = _ABSENT if old is None else old
    check = _Check(_Budget(metered=False))
    try:
        errors = check.run(schema, obj, before)
    except _MeteringNeededError:
        check = _Check(_Budget(metered=True))
        errors = check.run(schema, obj, before)
    if warnings is not None:
        warnings += check.warnings
    return errors


def check_default(schema: Schema, value: Any, path: str) -> list[FieldError]:
    """Return the errors that the rules report of a default at `path`, as its own old value or as a new one."""
    for old in (value, _ABSENT):
        try:
            errors = _Check(_Budget(metered=False), ratchets=False).run_at(schema, value, old, path)
        except _MeteringNeededError:
            errors = _Check(_Budget(metered=True), ratchets=False).run_at(schema, value, old, path)
        if errors:
            return errors
    return []


class _Check:
    """One pass over an object. Unless it `ratchets`, values that did not change are checked like others."""

    def __init__(self, budget: _Budget, *, ratchets: bool = True) -> None:
        self._budget = budget
        self._ratchets = ratchets
        self._errors: list[FieldError] = []
        self.warnings: list[str] = []

    def run(self, schema: Schema, obj: dict[str, Any], old: Any) -> list[FieldError]:
        with suppress(_BudgetExceededError):
            self._walk(schema, obj, old, "", unchanged=False, resource=True)
        return self._errors

    def run_at(self, schema: Schema, value: Any, old: Any, path: str) -> list[FieldError]:
        with suppress(_BudgetExceededError):
            embedded = schema.embedded_resource
            self._walk(schema, value, old, path, unchanged=False, resource=embedded)
        return self._errors

    def _walk(
        self, schema: Schema, value: Any, old: Any, path: str, *, unchanged: bool, resource: bool
    ) -> None:
        if value is None or not _has_rules_below(schema):
            return
        if old is None:
            old = _ABSENT
        unchanged = unchanged or (self._ratchets and old is not _ABSENT and value == old)
        if schema.rules:
            self._run_rules(schema, value, old, path, unchanged=unchanged, resource=resource)
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
                previous = before.get(key, _ABSENT)
                self._walk(
                    child, item, previous, where, unchanged=unchanged, resource=child.embedded_resource
                )
        elif isinstance(value, list) and schema.items is not None:
            find, items = correlate(schema, old), schema.items
            embedded = items.embedded_resource
            for index, item in enumerate(value):
                previous = _ABSENT if find is None else find(item, _ABSENT)
                where = f"{path}[{index}]"
                self._walk(items, item, previous, where, unchanged=unchanged, resource=embedded)

    def _run_rules(
        self, schema: Schema, value: Any, old: Any, path: str, *, unchanged: bool, resource: bool
    ) -> None:
        here = path or "<nil>"
        given = old is not _ABSENT
        self_value = value_of(schema, value)
        old_value = value_of(schema, old) if given else None
        plain = {"self": self_value, "oldSelf": old_value}
        optional = {"self": self_value, "oldSelf": Optional(old_value) if given else NONE}
        for compiled in _rules_of(schema, resource=resource):
            if isinstance(compiled, FieldError):
                self._errors.append(FieldError(compiled.reason, here, compiled.value, compiled.detail))
                continue
            rule = compiled.rule
            if compiled.transition and not given and not rule.optional_old_self:
                continue
            variables = optional if rule.optional_old_self else plain
            if self._holds(compiled, variables, schema, here):
                continue
            violation = _violation(schema, compiled, value, path, plain)
            if compiled.transition or not unchanged:
                self._errors.append(violation)
            else:
                self.warnings.append(str(violation))

    def _holds(self, compiled: CompiledRule, variables: dict[str, Any], schema: Schema, here: str) -> bool:
        """Return whether a rule holds; one that fails to evaluate is reported, and so not reported again."""
        try:
            return self._budget.evaluate(compiled.program, variables, compiled.most_cost) is True
        except CelEvaluationError as error:
            self._errors.append(field_errors.invalid(here, schema.type, _failure(error, compiled)))
            return True
        except CostExceededError as error:
            text = f"'{error}': no further validation rules will be run due to call cost exceeds limit for rule: "
            self._errors.append(field_errors.invalid(here, schema.type, text + compiled.text))
            raise _BudgetExceededError from None
        except _BudgetExceededError:
            self._errors.append(field_errors.invalid(here, schema.type, _NO_BUDGET))
            raise


def _has_rules_below(schema: Schema) -> bool:
    cached = _below.get(schema)
    if cached is None:
        _below[schema] = False  # ends the recursion in a cycle
        children = [*schema.properties.values(), schema.items, schema.additional]
        cached = bool(schema.rules) or any(_has_rules_below(child) for child in children if child is not None)
        _below[schema] = cached
    return cached


def _rules_of(schema: Schema, *, resource: bool) -> list[CompiledRule | FieldError]:
    by_kind = _compiled.get(schema)
    if by_kind is None:
        by_kind = _compiled[schema] = {}
    compiled = by_kind.get(resource)
    if compiled is None:
        declared = declare(schema, resource=resource)
        by_kind[resource] = compiled = []
        for rule in schema.rules if declared is not None else ():
            assert declared is not None
            try:
                compiled.append(compile_rule(rule, declared))
            except CelCompileError as error:
                text = f"rule compile error: compilation failed: {error}"
                compiled.append(field_errors.invalid("", schema.type, text))
    return compiled


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
    where = _field(schema, path, rule.field_path) or "<nil>"
    detail = _message(compiled, variables) or rule.message.strip() or f"failed rule: {compiled.text}"
    if rule.reason == field_errors.FORBIDDEN:
        return field_errors.forbidden(where, detail)
    if rule.reason == field_errors.REQUIRED:
        return field_errors.required(where, detail)
    shown = field_errors.OMITTED if schema.type in ("object", "array") else value
    if rule.reason == field_errors.DUPLICATE:
        return field_errors.duplicate(where, shown)
    return field_errors.invalid(where, shown, detail)


def _field(schema: Schema, path: str, field_path: str) -> str:
    """Return the path of the field that a rule is about: `.a['b']` below `path`; keys of maps are in brackets."""
    node: Schema | None = schema
    for name, key in _FIELD_PART.findall(field_path):
        part = name or key
        named = node is None or part in node.properties or node.additional is None
        path = f"{path}.{part}" if named else f"{path}[{part}]"
        node = None if node is None else node.child(part)
    return path.removeprefix(".")


def _message(compiled: CompiledRule, variables: dict[str, Any]) -> str:
    """Return the result of the rule's messageExpression, "" if it has none or the result cannot be shown.

    As in kube-apiserver, `oldSelf` is the old value here even if it is an optional in the rule.
    """
    if compiled.message is None:
        return ""
    try:
        message = compiled.message.evaluate(variables)
    except CelEvaluationError:
        return ""
    if not isinstance(message, str) or not message.strip() or "\n" in message or len(message) > _MAX_MESSAGE:
        return ""
    return message.strip()
