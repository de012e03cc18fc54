"""Validation of where a pod may run: affinity, tolerations, topology spread, gates."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.kinds import names
from kapsa.devcluster.embedded.strategies.generic import rules
from kapsa.devcluster.embedded.strategies.generic.checks import (
    LABEL_KEY,
    at_least,
    between,
    each,
    every,
    fields,
    given,
    one_of,
    present,
    unique,
)
from kapsa.devcluster.embedded.strategies.generic.node_selectors import node_selector, preferred_term
from kapsa.schemas.field_errors import FieldError, duplicate, forbidden, invalid, not_supported

__all__ = ["validate_scheduling", "validate_toleration"]

Object = dict[str, Any]

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_WITHOUT_SELECTOR = "must not be specified when labelSelector is not set"
_IN_BOTH = "exists in both matchLabelKeys and"


def validate_scheduling(spec: Object, path: str) -> list[FieldError]:
    """Return the errors in a pod spec about the nodes that the pod may run on."""
    errors = _AFFINITY(spec.get("affinity"), f"{path}.affinity")
    errors += _GATES(spec, path)
    errors += _spread(spec.get("topologySpreadConstraints") or [], f"{path}.topologySpreadConstraints")
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        errors += validate_toleration(toleration, f"{path}.tolerations[{index}]")
    return errors


def validate_toleration(toleration: Object, path: str) -> list[FieldError]:
    """Return the errors in a toleration."""
    errors: list[FieldError] = []
    key, operator = toleration.get("key") or "", toleration.get("operator") or ""
    value, effect = toleration.get("value") or "", toleration.get("effect") or ""
    if key:
        errors += LABEL_KEY(key, f"{path}.key")
    elif operator != "Exists":
        detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        errors.append(invalid(f"{path}.operator", operator, detail))
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        errors.append(invalid(f"{path}.effect", effect, detail))
    errors += _operator(operator, value, f"{path}.operator")
    if effect and effect not in _EFFECTS:
        errors.append(not_supported(f"{path}.effect", effect, _EFFECTS))
    return errors


def _operator(operator: str, value: str, path: str) -> list[FieldError]:
    if operator in ("", "Equal"):
        wrong = names.label_value(value)
        return [invalid(path, value, ";".join(wrong))] if wrong else []
    if operator == "Exists":
        return [invalid(path, value, "value must be empty when `operator` is 'Exists'")] if value else []
    alternatives = ("Equal", "Exists", "Lt", "Gt") if operator in ("Lt", "Gt") else ("Equal", "Exists")
    return [not_supported(path, operator, alternatives)]


def _label_keys(term: Object, path: str) -> list[FieldError]:
    """Return the errors in the keys of labels whose values the pod itself adds to a selector."""
    errors: list[FieldError] = []
    selector = term.get("labelSelector")
    for field in ("matchLabelKeys", "mismatchLabelKeys"):
        keys = term.get(field) or []
        if keys and selector is None:
            errors.append(forbidden(f"{path}.{field}", _WITHOUT_SELECTOR))
        elif keys:
            errors += each(LABEL_KEY)(keys, f"{path}.{field}")
    other = term.get("mismatchLabelKeys") or ()
    for index, key in enumerate(term.get("matchLabelKeys") or ()):
        if key in other:
            errors.append(invalid(f"{path}.matchLabelKeys[{index}]", key, f"{_IN_BOTH} mismatchLabelKeys"))
    return errors + _merged_keys(term, path)


def _merged_keys(term: Object, path: str) -> list[FieldError]:
    """Return the errors of keys that the selector has already: as a label, or in an earlier expression."""
    selector = term.get("labelSelector") or {}
    keys = {key: index for index, key in enumerate(term.get("matchLabelKeys") or ())}
    seen = set(selector.get("matchLabels") or ())
    errors: list[FieldError] = []
    for expression in selector.get("matchExpressions") or ():
        key = expression.get("key") or ""
        if key in keys and key in seen:
            errors.append(invalid(f"{path}[{keys[key]}]", key, f"{_IN_BOTH} labelSelector"))
        seen.add(key)
    return errors


def _namespaces(term: Object, path: str) -> list[FieldError]:
    return [
        # The real server names a field that does not exist.
        invalid(f"{path}.namespace", name, problem)
        for name in term.get("namespaces") or ()
        for problem in names.dns1123_label(name)
    ]


def _topology_key(term: Object, path: str) -> list[FieldError]:
    key, where = term.get("topologyKey"), f"{path}.topologyKey"
    return present(detail="can not be empty")(key, where) + LABEL_KEY(key, where)


def _pod_term(term: Any, path: str) -> list[FieldError]:
    given_term = term or {}
    errors = _SELECTORS(given_term, path)
    for check in (_namespaces, _label_keys, _topology_key):
        errors += check(given_term, path)
    return errors


_SELECTORS = fields(labelSelector=given(rules.label_selector), namespaceSelector=given(rules.label_selector))
_WEIGHT = between(1, 100, "must be in the range 1-100")
_PODS = fields(
    requiredDuringSchedulingIgnoredDuringExecution=each(_pod_term),
    preferredDuringSchedulingIgnoredDuringExecution=each(fields(weight=_WEIGHT, podAffinityTerm=_pod_term)),
)
_AFFINITY = fields(
    nodeAffinity=fields(
        requiredDuringSchedulingIgnoredDuringExecution=given(node_selector),
        preferredDuringSchedulingIgnoredDuringExecution=each(
            fields(weight=_WEIGHT, preference=preferred_term)
        ),
    ),
    podAffinity=_PODS,
    podAntiAffinity=_PODS,
)


def _gate(gate: Object, path: str) -> list[FieldError]:
    return LABEL_KEY(gate.get("name"), path)


_GATES = fields(
    readinessGates=each(fields(conditionType=LABEL_KEY)),
    schedulingGates=every(each(_gate), unique("name", field="")),
)
_SPREAD = fields(
    maxSkew=at_least(1),
    topologyKey=present(detail="can not be empty"),
    whenUnsatisfiable=one_of("DoNotSchedule", "ScheduleAnyway"),
)
_SPREAD_POLICIES = fields(
    minDomains=given(at_least(1)),
    nodeAffinityPolicy=given(one_of("Honor", "Ignore")),
    nodeTaintsPolicy=given(one_of("Honor", "Ignore")),
)


def _spread(constraints: list[Object], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, constraint in enumerate(constraints):
        where = f"{path}[{index}]"
        errors += _SPREAD(constraint, where)
        key, action = _identity(constraint)
        if any(_identity(other) == (key, action) for other in constraints[index + 1 :]):
            errors.append(duplicate(f"{where}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {action}}}"))
        errors += _SPREAD_POLICIES(constraint, where)
        if constraint.get("minDomains") is not None and action != "DoNotSchedule":
            detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
            errors.append(invalid(f"{where}.minDomains", constraint["minDomains"], detail))
        errors += _spread_keys(constraint, f"{where}.matchLabelKeys")
        if constraint.get("labelSelector") is not None:
            errors += rules.label_selector(constraint["labelSelector"], f"{where}.labelSelector")
    return errors


def _spread_keys(constraint: Object, path: str) -> list[FieldError]:
    keys, selector = constraint.get("matchLabelKeys") or [], constraint.get("labelSelector")
    if not keys:
        return []
    errors = [forbidden(path, _WITHOUT_SELECTOR)] if selector is None else []
    taken = set((selector or {}).get("matchLabels") or ())
    taken |= {each_one.get("key") for each_one in (selector or {}).get("matchExpressions") or ()}
    for index, key in enumerate(keys):
        errors += LABEL_KEY(key, f"{path}[{index}]")
        if key in taken:
            errors.append(invalid(f"{path}[{index}]", key, f"{_IN_BOTH} labelSelector"))
    return errors


def _identity(constraint: Object) -> tuple[str, str]:
    return constraint.get("topologyKey") or "", constraint.get("whenUnsatisfiable") or ""
