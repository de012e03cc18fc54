"""Authorizers: by RBAC, as a real server decides, or by a function of a test."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from kapsa.devcluster.embedded.authorization.rbac_index import RbacIndex, RoleReference
from kapsa.devcluster.embedded.authorization.rules import RoleRule
from kapsa.devcluster.embedded.storage.store import ObjectStore
from kapsa.devcluster.wire import status_errors as errors
from kapsa.devcluster.wire.authorization import AccessAttributes, AccessPolicy
from kapsa.devcluster.wire.exchange import RequestUser

__all__ = ["MASTERS", "Authorizer", "Decision", "PolicyAuthorizer", "RbacAuthorizer", "check"]

MASTERS = "system:masters"
"""The group whose members may do everything, whatever the roles say."""


class Decision(msgspec.Struct, frozen=True):
    """The outcome of an authorization, with the reason that reviews and errors show."""

    allowed: bool
    reason: str = ""


_REMEMBERED = 1000
"""Decisions that are kept at most."""
ALLOWED = Decision(True)
DENIED = Decision(False)


class Authorizer(Protocol):
    """The decisions of a server: which request is allowed."""

    def trusts(self, user: RequestUser) -> bool:
        """Return whether the user may do everything, so that the attributes of a request do not matter."""

    def decide(self, request: AccessAttributes) -> Decision:
        """Decide on one request."""

    def rules_review(self, user: RequestUser, namespace: str) -> dict[str, Any]:
        """Return the status of a SelfSubjectRulesReview."""


def check(authorizer: Authorizer, request: AccessAttributes) -> None:
    """Raise StatusError 403 unless the request is allowed."""
    decision = authorizer.decide(request)
    if not decision.allowed:
        raise errors.not_authorized(request, decision.reason)


class PolicyAuthorizer:
    """An authorizer that is a function, given to the devcluster by a test."""

    def __init__(self, policy: AccessPolicy) -> None:
        self._policy = policy

    def trusts(self, user: RequestUser) -> bool:
        return False

    def decide(self, request: AccessAttributes) -> Decision:
        return ALLOWED if self._policy(request) else DENIED

    def rules_review(self, user: RequestUser, namespace: str) -> dict[str, Any]:
        return {
            "resourceRules": [],
            "nonResourceRules": [],
            "incomplete": True,
            "evaluationError": "the devcluster's policy is a function, which cannot be listed as rules",
        }


class RbacAuthorizer:
    """The RBAC authorizer, behind the privileged group."""

    def __init__(self, store: ObjectStore) -> None:
        self._index = RbacIndex(store)
        self._decisions: dict[tuple[object, ...], Decision] = {}
        """Decisions since the last change of a role or binding, by request; those for any name without the name."""

    def trusts(self, user: RequestUser) -> bool:
        """Return whether the user is in the privileged group."""
        return MASTERS in user.groups

    def decide(self, request: AccessAttributes) -> Decision:
        """Decide by the rules of the user's bindings. Members of `system:masters` may do everything."""
        user = request.user
        if MASTERS in user.groups:
            return ALLOWED
        if self._index.refresh() or len(self._decisions) > _REMEMBERED:
            self._decisions.clear()
        key = (
            *(user.username, user.groups, request.verb, request.group, request.resource),
            *(request.subresource, request.namespace, request.path),
        )
        return (
            self._decisions.get(key) or self._decisions.get((key, request.name)) or self._decide(request, key)
        )

    def _decide(self, request: AccessAttributes, key: tuple[object, ...]) -> Decision:
        """Decide by the rules, and remember it: for all names, unless a rule that was looked at is for some."""
        user, index = request.user, self._index
        decision, by_name = None, False
        missing: list[RoleReference] = []
        for binding in index.bindings_of(user, request.namespace):
            rules = index.rules_of(binding.role)
            if rules is None:
                missing.append(binding.role)
                continue
            by_name = by_name or any(rule.names for rule in rules)
            if any(rule.allows(request) for rule in rules):
                decision = Decision(True, f"RBAC: allowed by {binding.describe(user)}")
                break
        if decision is None:
            decision = Decision(False, f"RBAC: {_aggregate(missing)}") if missing else DENIED
        self._decisions[(key, request.name) if by_name else key] = decision
        return decision

    def rules_for(self, user: RequestUser, namespace: str) -> tuple[list[RoleRule], str]:
        """Return all rules of a user in a namespace, and what is wrong with their bindings."""
        self._index.refresh()
        rules: list[RoleRule] = []
        missing: list[RoleReference] = []
        for binding in self._index.bindings_of(user, namespace):
            bound = self._index.rules_of(binding.role)
            if bound is None:
                missing.append(binding.role)
            else:
                rules.extend(bound)
        return rules, _aggregate(missing)

    def rules_of(self, role: RoleReference) -> tuple[RoleRule, ...] | None:
        """Return the rules of a role, or None if it does not exist."""
        self._index.refresh()
        return self._index.rules_of(role)

    def rules_review(self, user: RequestUser, namespace: str) -> dict[str, Any]:
        """Return the status of a SelfSubjectRulesReview."""
        rules, problem = self.rules_for(user, namespace)
        status: dict[str, Any] = {
            "resourceRules": [_resource_rule(rule) for rule in rules if rule.resources],
            "nonResourceRules": [
                {"verbs": rule.verbs, "nonResourceURLs": rule.paths} for rule in rules if rule.paths
            ],
            "incomplete": False,
        }
        if problem:
            status["evaluationError"] = problem
        return status


class _Role(msgspec.Struct, frozen=True):
    """The names of a role in errors of the real server's cache, which are singular."""

    resource: str
    group: str = "rbac.authorization.k8s.io"
    kind: str = ""


def _resource_rule(rule: RoleRule) -> dict[str, Any]:
    listed: dict[str, Any] = {"verbs": rule.verbs, "apiGroups": rule.groups, "resources": rule.resources}
    if rule.names:
        listed["resourceNames"] = rule.names
    return listed


def _aggregate(missing: list[RoleReference]) -> str:
    """Return the error of several missing roles as Go aggregates it."""
    texts = list(
        dict.fromkeys(str(errors.not_found(_Role(role.kind.lower()), role.name)) for role in missing)
    )
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]" if texts else ""
