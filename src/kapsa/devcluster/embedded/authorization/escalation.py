"""Escalation checks: a user can grant only rules that they have, unless they may `escalate` or `bind`."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.authorization.authorizer import MASTERS, RbacAuthorizer
from kapsa.devcluster.embedded.authorization.rbac_index import GROUP, RoleReference
from kapsa.devcluster.embedded.authorization.rules import (
    EVERYTHING,
    RoleRule,
    describe_missing,
    parse_rules,
    quoted,
    uncovered,
)
from kapsa.devcluster.embedded.requests.mutations import DeleteRequest, WriteRequest
from kapsa.devcluster.embedded.requests.parameters import WriteMethod
from kapsa.devcluster.wire import status_errors as errors
from kapsa.devcluster.wire.authorization import AccessAttributes
from kapsa.schemas.go_format import quote

__all__ = ["EscalationCheck"]

Object = dict[str, Any]
_ROLES = ("clusterroles", "roles")
_BINDINGS = ("clusterrolebindings", "rolebindings")
_COLLECTOR_FIELDS = ("ownerReferences", "finalizers", "managedFields", "resourceVersion")
"""Metadata that the garbage collector writes, and that grants nothing."""


class EscalationCheck:
    """A check that roles and bindings grant no more than their writer has, after all other mutations."""

    resources: frozenset[tuple[str, str]] | None = frozenset((GROUP, name) for name in (*_ROLES, *_BINDINGS))

    def __init__(self, authorizer: RbacAuthorizer) -> None:
        self._authorizer = authorizer

    async def mutate(self, write: WriteRequest, obj: Object, old: Object | None) -> Object:
        info = write.info
        if info.group != GROUP or MASTERS in write.user.groups:
            return obj
        if old is not None and _without_collector_fields(obj) == _without_collector_fields(old):
            return obj
        if info.resource in _ROLES:
            self._check_role(write, obj, old)
        elif info.resource in _BINDINGS:
            self._check_binding(write, obj)
        return obj

    async def validate(self, write: WriteRequest, obj: Object, old: Object | None) -> None:
        return

    async def validate_deletion(self, deletion: DeleteRequest, obj: Object) -> None:
        return

    def _check_role(self, write: WriteRequest, obj: Object, old: Object | None) -> None:
        # A create has no name in its path, so a right that is limited to names does not apply to it.
        name = "" if write.method is WriteMethod.CREATE else write.name
        if self._may(write, "escalate", write.info.resource, name):
            return
        self._confirm(write, obj, parse_rules(obj.get("rules")))
        if _aggregates(obj) or _aggregates(old or {}):
            owned, _ = self._authorizer.rules_for(write.user, write.namespace)
            if uncovered(owned, EVERYTHING):
                why = "must have cluster-admin privileges to use the aggregationRule"
                raise errors.forbidden(write.info, obj["metadata"].get("name", ""), why)

    def _check_binding(self, write: WriteRequest, obj: Object) -> None:
        reference = obj.get("roleRef") or {}
        role = RoleReference(reference.get("kind") or "", reference.get("name") or "", write.namespace)
        if role.kind not in ("Role", "ClusterRole"):
            raise errors.StatusError(500, "", f"unsupported role reference kind: {quote(role.kind)}")
        if self._may(write, "bind", f"{role.kind.lower()}s", role.name):
            return
        rules = self._authorizer.rules_of(role)
        if rules is None:
            # The real server names the resource of the request, not that of the role.
            raise errors.not_found(write.info, role.name)
        self._confirm(write, obj, rules)

    def _may(self, write: WriteRequest, verb: str, resource: str, name: str) -> bool:
        asked = AccessAttributes(
            user=write.user,
            verb=verb,
            group=GROUP,
            version="*",
            resource=resource,
            namespace=write.namespace,
            name=name,
        )
        return self._authorizer.decide(asked).allowed

    def _confirm(self, write: WriteRequest, obj: Object, granted: tuple[RoleRule, ...]) -> None:
        owned, problem = self._authorizer.rules_for(write.user, write.namespace)
        missing = uncovered(owned, granted)
        if not missing:
            return
        user = write.user
        why = (
            f"user {quote(user.username)} (groups={quoted(user.groups)}) is attempting to grant RBAC permissions "
            f"not currently held:\n{describe_missing(missing)}"
        )
        if problem:
            why += f"; resolution errors: [{problem}]"
        raise errors.forbidden(write.info, obj["metadata"].get("name") or "", why)


def _aggregates(role: Object) -> bool:
    return bool((role.get("aggregationRule") or {}).get("clusterRoleSelectors"))


def _without_collector_fields(obj: Object) -> Object:
    metadata = {key: value for key, value in obj["metadata"].items() if key not in _COLLECTOR_FIELDS}
    return {**obj, "metadata": metadata}
