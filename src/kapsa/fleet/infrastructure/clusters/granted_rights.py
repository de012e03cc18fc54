"""The rights that the Roles of charts grant, and those among them that deserve a second look.

The account of the manager needs each right to install the chart, so that it has them all.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from kapsa.fleet.domain.errors import InvalidInput

__all__ = ["GrantedRule", "granted_rules", "grants_of_everything", "role_warnings"]

_POWERFUL = ("bind", "escalate", "impersonate")
_FIELDS = ("apiGroups", "resources", "resourceNames", "nonResourceURLs", "verbs")
_ROLES_NAMED = 5


class GrantedRule(msgspec.Struct, frozen=True):
    """A rule, and the Role or ClusterRole that it is from."""

    role: str
    namespaced: bool
    rule: dict[str, Any]

    @property
    def everything(self) -> bool:
        """True if the rule makes its holder an administrator of the cluster."""
        return all("*" in self.rule.get(field, ()) for field in ("apiGroups", "resources", "verbs"))


def granted_rules(manifest: Iterable[Mapping[str, Any]]) -> Iterator[GrantedRule]:
    """Yield the rules of the Roles and ClusterRoles in a manifest. Raises InvalidInput for a malformed one."""
    for each in manifest:
        if each["kind"] in ("Role", "ClusterRole"):
            role, rules = _name(each), each.get("rules") or []
            if not isinstance(rules, list) or not all(map(_is_rule, rules)):
                raise InvalidInput(f"{role} has rules that are not a list of objects with lists of texts")
            for rule in rules:
                yield GrantedRule(role, each["kind"] == "Role", rule)


def grants_of_everything(manifest: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the roles that make their holders administrators of the cluster, each once."""
    return list(dict.fromkeys(each.role for each in granted_rules(manifest) if each.everything))


def role_warnings(manifest: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a sentence about each right that makes a role of the manager more powerful than its author may think."""
    granted = list(granted_rules(manifest))
    warnings = [warning for each in granted for warning in _rule_warnings(each)]
    namespaced = list(dict.fromkeys(each.role for each in granted if each.namespaced))
    if namespaced:
        more = f" and {len(namespaced) - _ROLES_NAMED} more" if len(namespaced) > _ROLES_NAMED else ""
        names = ", ".join(namespaced[:_ROLES_NAMED]) + more
        where = "its namespace" if len(namespaced) == 1 else "their namespaces"
        warnings.append(
            f"the rights of {names} count in {where}, and those of the role below in all namespaces"
        )
    return list(dict.fromkeys(warnings))


def _rule_warnings(granted: GrantedRule) -> Iterator[str]:
    rule = granted.rule
    resources = ", ".join(rule.get("resources", ()))
    powerful = [verb for verb in _POWERFUL if verb in rule["verbs"]]
    if granted.everything:
        yield f"{granted.role} grants everything: the role below is an administrator of the cluster"
    elif any("*" in rule.get(field, ()) for field in ("apiGroups", "resources", "verbs")):
        yield f"{granted.role} has a wildcard: it grants {', '.join(rule['verbs'])} on {resources}"
    if powerful:
        verbs = " and ".join(powerful)
        yield f"{granted.role} grants {verbs} on {resources}: an account with that can get any other right"


def _is_rule(rule: Any) -> bool:
    return (
        isinstance(rule, dict)
        and "verbs" in rule
        and all(_is_texts(rule[field]) for field in _FIELDS if field in rule)
    )


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _name(role: Mapping[str, Any]) -> str:
    metadata = role.get("metadata")
    fields = metadata if isinstance(metadata, Mapping) else {}
    namespace = fields.get("namespace") if role["kind"] == "Role" else None
    return f"{role['kind']} {f'{namespace}/' if namespace else ''}{fields.get('name', 'without a name')}"
