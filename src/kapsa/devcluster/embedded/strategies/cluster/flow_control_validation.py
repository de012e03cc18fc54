"""Validation of flow schemas and priority levels."""

from __future__ import annotations

import math
from typing import Any

from kapsa.devcluster.embedded.kinds import names
from kapsa.devcluster.embedded.strategies.generic.checks import (
    LABEL,
    SUBDOMAIN,
    Check,
    at_least,
    between,
    each,
    every,
    fields,
    given,
    needed,
    one_of,
    present,
)
from kapsa.schemas.field_errors import FieldError, forbidden, invalid, not_supported, required
from kapsa.schemas.go_format import GoStruct

__all__ = ["validate_flow_schema", "validate_priority_level"]

Object = dict[str, Any]

_METHODS = ("ByNamespace", "ByUser")
_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch")
_LAST_PRECEDENCE, _MOST_QUEUES, _HASH_BITS = 10000, 10_000_000, 60
_EXEMPT = "exempt"


def validate_flow_schema(obj: Object) -> list[FieldError]:
    """Return the errors in a flow schema."""
    spec, where = obj["spec"], "spec.matchingPrecedence"
    precedence = spec["matchingPrecedence"]
    errors: list[FieldError] = []
    if precedence <= 0:
        errors.append(invalid(where, precedence, "must be a positive value"))
    if precedence > _LAST_PRECEDENCE:
        errors.append(invalid(where, precedence, f"must not be greater than {_LAST_PRECEDENCE}"))
    if precedence == 1 and obj["metadata"].get("name") != _EXEMPT:
        detail = "only the schema named 'exempt' may have matchingPrecedence 1"
        errors.append(invalid(where, precedence, detail))
    return errors + _SCHEMA(spec, "spec")


def _method(method: Object, path: str) -> list[FieldError]:
    kind = method.get("type") or ""
    # The real server shows the whole method.
    return [] if kind in _METHODS else [not_supported(f"{path}.type", GoStruct(Type=kind), _METHODS)]


def _subject(subject: Object, path: str) -> list[FieldError]:
    kind = subject.get("kind") or ""
    if kind not in _SUBJECTS:
        return [not_supported(f"{path}.kind", kind, sorted(_SUBJECTS))]
    errors: list[FieldError] = []
    for name, (field, check) in _SUBJECTS.items():
        where, value = f"{path}.{field}", subject.get(field)
        if name == kind:
            detail = f"{field} is required when subject kind is '{name}'"
            errors += [required(where, detail)] if value is None else check(value, where)
        elif value is not None:
            errors.append(forbidden(where, f"{field} is forbidden when subject kind is not '{name}'"))
    return errors


def _account_name(name: str, path: str) -> list[FieldError]:
    return [] if name == "*" else SUBDOMAIN(name, path)


_SUBJECTS: dict[str, tuple[str, Check]] = {
    "ServiceAccount": (
        "serviceAccount",
        fields(
            name=present(_account_name),
            namespace=present(LABEL, detail="must specify namespace for service account"),
        ),
    ),
    "User": ("user", needed("name")),
    "Group": ("group", needed("name")),
}


def _alone(noun: str, missing: str, check: Check | None = None) -> Check:
    """Return the check of a list in which `*` stands alone; `check` is for one without it."""

    def of_list(values: list[str] | None, path: str) -> list[FieldError]:
        if not values:
            return [required(path, missing)]
        if "*" not in values:
            return check(values, path) if check else []
        detail = f"if '*' is present, must not specify other {noun}"
        return [invalid(path, values, detail)] if len(values) > 1 else []

    return of_list


def _verbs(verbs: list[str], path: str) -> list[FieldError]:
    return [] if set(verbs) <= set(_VERBS) else [not_supported(path, verbs, _VERBS)]


def _url(url: str, path: str) -> list[FieldError]:
    stars = url.count("*")
    wrong = (
        (not url, "must not be empty"),
        (not url.startswith("/"), "must start with slash"),
        (" " in url, "must not contain white-space"),
        ("//" in url, "must not contain double slash"),
        (stars > 1 or (stars == 1 and not url.endswith("/*")), "wildcard can only do suffix matching"),
    )
    return [invalid(path, url, detail) for applies, detail in wrong if applies][:1]


def _namespace(name: str, path: str) -> list[FieldError]:
    intro = "each member of this list must be '*' or a DNS-1123 label; "
    return [invalid(path, name, intro + problem) for problem in names.dns1123_label(name)]


def _resource_rule(rule: Object, path: str) -> list[FieldError]:
    errors = _RESOURCES(rule, path)
    if rule.get("namespaces") or not rule.get("clusterScope"):
        errors += _NAMESPACES(rule.get("namespaces"), f"{path}.namespaces")
    return errors


def _rule(rule: Object, path: str) -> list[FieldError]:
    errors = _RULE(rule, path)
    if not rule.get("resourceRules") and not rule.get("nonResourceRules"):
        detail = "at least one of resourceRules and nonResourceRules has to be non-empty"
        errors.append(required(path, detail))
    return errors


_ANY_VERBS = _alone("verbs", "verbs must contain at least one value", _verbs)
_NAMESPACES = _alone(
    "namespaces",
    "resource rules that are not cluster scoped must supply at least one namespace",
    each(_namespace),
)
_RESOURCES = fields(
    verbs=_ANY_VERBS,
    apiGroups=_alone("api groups", "resource rules must supply at least one api group"),
    resources=_alone("resources", "resource rules must supply at least one resource"),
)
_URLS = fields(
    verbs=_ANY_VERBS,
    nonResourceURLs=_alone(
        "non-resource URLs", "nonResourceURLs must contain at least one value", each(_url)
    ),
)
_RULE = fields(
    subjects=present(each(_subject), detail="subjects must contain at least one value"),
    resourceRules=each(_resource_rule),
    nonResourceRules=each(_URLS),
)
_SCHEMA = fields(
    distinguisherMethod=given(_method),
    priorityLevelConfiguration=fields(name=present(SUBDOMAIN, detail="must reference a priority level")),
    rules=each(_rule),
)


def validate_priority_level(obj: Object) -> list[FieldError]:
    """Return the errors in a priority level."""
    spec, kind = obj["spec"], obj["spec"].get("type") or ""
    errors: list[FieldError] = []
    if (obj["metadata"].get("name") == _EXEMPT) != (kind == "Exempt"):
        detail = "must be 'Exempt' if and only if `name` is 'exempt'"
        errors.append(invalid("spec.type", kind, detail))
    if kind == "Exempt":
        if spec.get("limited") is not None:
            errors.append(forbidden("spec.limited", "must be nil if the type is not Limited"))
        return errors + given(_SHARES)(spec.get("exempt"), "spec.exempt")
    if kind == "Limited":
        if spec.get("exempt") is not None:
            errors.append(forbidden("spec.exempt", "must be nil if the type is Limited"))
        if spec.get("limited") is None:
            return [*errors, required("spec.limited", "must not be empty when type is Limited")]
        return errors + _LIMITED(spec["limited"], "spec.limited")
    return errors + present(one_of("Exempt", "Limited"))(kind, "spec.type")


def _response(response: Any, path: str) -> list[FieldError]:
    queuing, kind = (response or {}).get("queuing"), (response or {}).get("type") or ""
    where = f"{path}.queuing"
    if kind == "Queue":
        detail = "must not be empty if limited.limitResponse.type is Limited"
        return [required(where, detail)] if queuing is None else _queuing(queuing, where)
    if kind == "Reject":
        detail = "must be nil if limited.limitResponse.type is not Limited"
        return [] if queuing is None else [forbidden(where, detail)]
    return present(one_of("Queue", "Reject"))(kind, f"{path}.type")


def _queuing(queuing: Object, path: str) -> list[FieldError]:
    queues, hand = queuing["queues"], queuing["handSize"]
    errors = at_least(1, "must be positive")(queuing["queueLengthLimit"], f"{path}.queueLengthLimit")
    errors += at_least(1, "must be positive")(queues, f"{path}.queues")
    if queues > _MOST_QUEUES:
        errors.append(invalid(f"{path}.queues", queues, f"must not be greater than {_MOST_QUEUES}"))
    where = f"{path}.handSize"
    if hand <= 0:
        errors.append(invalid(where, hand, "must be positive"))
    elif hand > queues:
        errors.append(invalid(where, hand, f"should not be greater than queues ({queues})"))
    elif _entropy(queues, hand) > _HASH_BITS:
        detail = f"required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {_HASH_BITS}"
        errors.append(invalid(where, hand, detail))
    return errors


def _entropy(queues: int, hand: int) -> int:
    """Return the bits that dealing a hand of queues needs. A large hand exceeds any limit."""
    if hand > _HASH_BITS:
        return _HASH_BITS + 1
    return math.ceil(sum(math.log2(queues - dealt) for dealt in range(hand)))


_SHARES = fields(
    nominalConcurrencyShares=given(at_least(0, "must be a non-negative integer")),
    lendablePercent=given(between(0, 100)),
)
_LIMITED = every(
    _SHARES,
    fields(
        limitResponse=_response,
        borrowingLimitPercent=given(at_least(0, "if specified, must be a non-negative integer")),
    ),
)
