"""Admission policies and their bindings: defaults and validation."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from kapsa.devcluster.embedded.kinds import names
from kapsa.devcluster.embedded.strategies.generic import rules
from kapsa.devcluster.embedded.strategies.generic.builtin import BuiltInStrategy, Object
from kapsa.devcluster.embedded.strategies.policy.match_rules import default_match, match_resources
from kapsa.schemas.field_errors import FieldError, duplicate, forbidden, invalid, not_supported, required

_FAILURE_POLICIES = ("Fail", "Ignore")
_REINVOCATIONS = ("IfNeeded", "Never")
_MUTABLE = ("*", "CONNECT", "CREATE", "UPDATE")
"""The operations that have an object to change."""
_ACTIONS = ("Audit", "Deny", "Warn")
_NOTHING = "validations or auditAnnotations must contain at least one item"


def _expressions() -> ModuleType:
    """Return the module that compiles expressions, and with it CEL: a server without policies starts sooner."""
    from kapsa.devcluster.embedded.strategies.policy import policy_expressions

    return policy_expressions


class _PolicyStrategy(BuiltInStrategy):
    """The base of the strategies of validating and mutating policies."""

    def initial_status(self, obj: Object) -> dict[str, Any]:
        return {}

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        if spec.get("failurePolicy") is None:
            spec["failurePolicy"] = "Fail"
        if spec.get("matchConstraints") is not None:
            default_match(spec["matchConstraints"])

    def validate_create(self, obj: Object) -> list[FieldError]:
        return self._errors(obj, checks_conditions=True)

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        before, after = old.get("spec") or {}, obj["spec"]
        changed = any(before.get(field) != after.get(field) for field in ("paramKind", "matchConditions"))
        return self._errors(obj, checks_conditions=changed)

    def _errors(self, obj: Object, *, checks_conditions: bool) -> list[FieldError]:
        spec = obj["spec"]
        params = spec.get("paramKind") is not None
        errors: list[FieldError] = []
        if spec["failurePolicy"] not in _FAILURE_POLICIES:
            errors.append(not_supported("spec.failurePolicy", spec["failurePolicy"], _FAILURE_POLICIES))
        if params:
            errors += _param_kind(spec["paramKind"], "spec.paramKind")
        errors += self._constraints(spec)
        if checks_conditions:
            conditions = spec.get("matchConditions") or ()
            errors += _expressions().match_conditions(conditions, "spec.matchConditions", params=params)
        return errors

    def _constraints(self, spec: Object) -> list[FieldError]:
        constraints = spec.get("matchConstraints")
        if constraints is None:
            return [required("spec.matchConstraints")]
        errors = match_resources(constraints, "spec.matchConstraints")
        if not constraints.get("resourceRules"):
            errors.append(required("spec.matchConstraints.resourceRules"))
        return errors


class ValidatingPolicyStrategy(_PolicyStrategy):
    """Strategy of validating admission policies."""

    def _errors(self, obj: Object, *, checks_conditions: bool) -> list[FieldError]:
        spec = obj["spec"]
        errors = super()._errors(obj, checks_conditions=checks_conditions)
        given, expressions = spec.get("variables") or (), _expressions()
        compiler = expressions.PolicyCompiler(params=spec.get("paramKind") is not None, composes=bool(given))
        errors += expressions.variables(compiler, given, "spec.variables")
        validations, annotations = spec.get("validations") or (), spec.get("auditAnnotations") or ()
        if not validations and not annotations:
            return [
                *errors,
                required("spec.validations", _NOTHING),
                required("spec.auditAnnotations", _NOTHING),
            ]
        errors += expressions.validations(compiler, validations, "spec.validations")
        name, path = obj["metadata"].get("name") or "", "spec.auditAnnotations"
        errors += expressions.audit_annotations(compiler, name, annotations, path)
        return errors


class MutatingPolicyStrategy(_PolicyStrategy):
    """Strategy of mutating admission policies."""

    def _errors(self, obj: Object, *, checks_conditions: bool) -> list[FieldError]:
        spec = obj["spec"]
        errors = super()._errors(obj, checks_conditions=checks_conditions)
        expressions = _expressions()
        compiler = expressions.PolicyCompiler(params=spec.get("paramKind") is not None, composes=True)
        errors += expressions.variables(compiler, spec.get("variables") or (), "spec.variables")
        errors += expressions.mutations(compiler, spec.get("mutations") or (), "spec.mutations")
        reinvocation = spec.get("reinvocationPolicy") or ""
        if not reinvocation:
            errors.append(required("spec.reinvocationPolicy"))
        elif reinvocation not in _REINVOCATIONS:
            errors.append(not_supported("spec.reinvocationPolicy", reinvocation, _REINVOCATIONS))
        return errors

    def _constraints(self, spec: Object) -> list[FieldError]:
        errors = super()._constraints(spec)
        return errors + _immutable_operations(spec.get("matchConstraints"), "spec.matchConstraints")


class _BindingStrategy(BuiltInStrategy):
    """The base of the strategies of bindings."""

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        if spec.get("matchResources") is not None:
            default_match(spec["matchResources"])

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj["spec"]
        errors: list[FieldError] = []
        name = spec.get("policyName") or ""
        if name:
            errors += [invalid("spec.policyName", name, one) for one in names.dns1123_subdomain(name)]
        else:
            errors.append(required("spec.policyName"))
        errors += _param_ref(spec.get("paramRef"), "spec.paramRef")
        return errors + match_resources(spec.get("matchResources"), "spec.matchResources")


class ValidatingBindingStrategy(_BindingStrategy):
    """Strategy of the bindings of validating admission policies."""

    def validate(self, obj: Object) -> list[FieldError]:
        actions = obj["spec"].get("validationActions") or []
        return super().validate(obj) + _actions(actions, "spec.validationActions")


class MutatingBindingStrategy(_BindingStrategy):
    """Strategy of the bindings of mutating admission policies."""

    def validate(self, obj: Object) -> list[FieldError]:
        path = "spec.matchResources"
        return super().validate(obj) + _immutable_operations(obj["spec"].get("matchResources"), path)


def _immutable_operations(match: Object | None, path: str) -> list[FieldError]:
    """Return an error for each operation that has no object to change."""
    return [
        not_supported(f"{path}.resourceRules.operations", operation, _MUTABLE)
        for rule in (match or {}).get("resourceRules") or ()
        for operation in rule.get("operations") or ()
        if operation not in _MUTABLE
    ]


def _param_kind(kind: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    given, field = kind.get("apiVersion") or "", f"{path}.apiVersion"
    group, slash, version = given.partition("/")
    if not slash:
        group, version = "", given
    if not given:
        errors.append(required(field))
    elif given.count("/") > 1:
        errors.append(invalid(field, given, f"unexpected GroupVersion string: {given}"))
    else:
        if group and (problems := names.dns1123_subdomain(group)):
            errors.append(invalid(field, group, ",".join(problems)))
        if not version:
            errors.append(invalid(field, given, "version must be specified"))
        elif problems := names.dns1035_label(version):
            errors.append(invalid(field, version, ",".join(problems)))
    name = kind.get("kind") or ""
    if not name:
        errors.append(required(f"{path}.kind"))
    elif problems := names.dns1035_label(name.lower()):
        detail = f"may have mixed case, but should otherwise match: {','.join(problems)}"
        errors.append(invalid(f"{path}.kind", name, detail))
    return errors


def _param_ref(reference: Object | None, path: str) -> list[FieldError]:
    if reference is None:
        return []
    errors: list[FieldError] = []
    name, selector = reference.get("name") or "", reference.get("selector")
    both = "name and selector are mutually exclusive"
    errors += [
        invalid(f"{path}.name", name, problem) for problem in (names.path_segment(name) if name else ())
    ]
    if name and selector is not None:
        errors.append(forbidden(f"{path}.name", both))
    if selector is not None:
        errors += rules.label_selector(selector, f"{path}.selector")
        if name:
            errors.append(forbidden(f"{path}.selector", both))
    elif not name:
        errors.append(required(path, "one of name or selector must be specified"))
    action = reference.get("parameterNotFoundAction") or ""
    if not action:
        errors.append(required(f"{path}.parameterNotFoundAction"))
    elif action not in ("Deny", "Allow"):
        errors.append(not_supported(f"{path}.parameterNotFoundAction", action, ("Deny", "Allow")))
    return errors


def _actions(actions: Sequence[str], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, action in enumerate(actions):
        if action not in _ACTIONS:
            errors.append(not_supported(f"{path}[{index}]", action, _ACTIONS))
        if action in actions[:index]:
            errors.append(duplicate(f"{path}[{index}]", action))
    if "Deny" in actions and "Warn" in actions:
        detail = (
            "must not contain both Deny and Warn (repeating the same validation failure information in the API response "
            "and headers serves no purpose)"
        )
        errors.append(invalid(path, list(actions), detail))
    if not actions:
        errors.append(required(path, "at least one validation action is required"))
    return errors
