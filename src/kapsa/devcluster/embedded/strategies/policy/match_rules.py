"""Rules that select requests, of webhooks and admission policies: defaults and validation."""

from __future__ import annotations

from collections.abc import Sequence

from kapsa.devcluster.embedded.kinds import names
from kapsa.devcluster.embedded.strategies.generic import rules as generic_rules
from kapsa.devcluster.embedded.strategies.generic.builtin import Object
from kapsa.schemas.field_errors import FieldError, duplicate, invalid, not_supported, required

__all__ = ["default_match", "match_resources", "rule_with_operations"]

_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_SCOPES = ("*", "Cluster", "Namespaced")
_POLICIES = ("Equivalent", "Exact")
_SELECTORS = ("namespaceSelector", "objectSelector")


def default_match(match: Object) -> None:
    """Set the defaults of a MatchResources."""
    if match.get("matchPolicy") is None:
        match["matchPolicy"] = "Equivalent"
    for selector in _SELECTORS:
        if match.get(selector) is None:
            match[selector] = {}
    for field in ("resourceRules", "excludeResourceRules"):
        for rule in match.get(field) or ():
            if rule.get("scope") is None:
                rule["scope"] = "*"


def match_resources(match: Object | None, path: str) -> list[FieldError]:
    """Return the errors in a MatchResources."""
    if match is None:
        return []
    errors: list[FieldError] = []
    if match["matchPolicy"] not in _POLICIES:
        errors.append(not_supported(f"{path}.matchPolicy", match["matchPolicy"], _POLICIES))
    for selector in _SELECTORS:
        errors += generic_rules.label_selector(match[selector], f"{path}.{selector}")
    for field in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(match.get(field) or ()):
            errors += _named_rule(rule, f"{path}.{field}[{index}]")
    return errors


def _named_rule(rule: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    given = rule.get("resourceNames") or []
    for index, name in enumerate(given):
        where = f"{path}.resourceNames[{index}]"
        errors += [invalid(where, name, problem) for problem in names.path_segment(name)]
        if name in given[:index]:
            errors.append(duplicate(where, name))
    return errors + rule_with_operations(rule, path)


def rule_with_operations(rule: Object, path: str) -> list[FieldError]:
    """Return the errors in a rule of a webhook or a policy."""
    operations = rule.get("operations") or []
    errors = _alone(operations, f"{path}.operations", "operations")
    for index, operation in enumerate(operations):
        if operation not in _OPERATIONS:
            errors.append(not_supported(f"{path}.operations[{index}]", operation, _OPERATIONS))
    errors += _alone(rule.get("apiGroups") or [], f"{path}.apiGroups", "API groups")
    versions = rule.get("apiVersions") or []
    errors += _alone(versions, f"{path}.apiVersions", "API versions")
    errors += [required(f"{path}.apiVersions[{i}]") for i, version in enumerate(versions) if not version]
    errors += _resources(rule.get("resources") or [], f"{path}.resources")
    scope = rule.get("scope")
    if scope is not None and scope not in _SCOPES:
        errors.append(not_supported(f"{path}.scope", scope, _SCOPES))
    return errors


def _alone(values: list[str], path: str, noun: str) -> list[FieldError]:
    """Return the errors of a list that must not be empty, and in which `*` stands alone."""
    if not values:
        return [required(path)]
    if len(values) > 1 and "*" in values:
        return [invalid(path, values, f"if '*' is present, must not specify other {noun}")]
    return []


def _resources(resources: Sequence[str], path: str) -> list[FieldError]:
    errors: list[FieldError] = [] if resources else [required(path)]
    every_subresource: set[str] = set()
    in_every_resource: set[str] = set()
    # As in the real server, only the last resource without a subresource counts.
    has_plain = False
    for index, entry in enumerate(resources):
        where = f"{path}[{index}]"
        if not entry:
            errors.append(required(where))
            continue
        resource, slash, subresource = entry.partition("/")
        if not slash:
            has_plain = entry != "*"
            continue
        if resource in every_subresource:
            detail = f"if '{resource}/*' is present, must not specify {entry}"
            errors.append(invalid(where, entry, detail))
        if subresource in in_every_resource:
            errors.append(invalid(where, entry, f"if '*/{subresource}' is present, must not specify {entry}"))
        if subresource == "*":
            every_subresource.add(resource)
        if resource == "*":
            in_every_resource.add(subresource)
    if len(resources) > 1 and "*/*" in resources:
        errors.append(invalid(path, list(resources), "if '*/*' is present, must not specify other resources"))
    if "*" in resources and has_plain:
        detail = "if '*' is present, must not specify other resources without subresources"
        errors.append(invalid(path, list(resources), detail))
    return errors
