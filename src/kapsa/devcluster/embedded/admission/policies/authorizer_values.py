"""The `authorizer` of an expression: `authorizer.group('apps').resource('deployments').check('list').allowed()`."""

from __future__ import annotations

import msgspec

from kapsa.devcluster.embedded.authorization.authorizer import Authorizer, Decision
from kapsa.devcluster.wire.authorization import AccessAttributes
from kapsa.devcluster.wire.exchange import RequestUser

__all__ = ["AuthorizerValue"]


class AuthorizerValue(msgspec.Struct, frozen=True):
    """The decisions about one user."""

    authorizer: Authorizer
    user: RequestUser

    def path(self, path: str) -> PathCheck:
        """Return a check of a path outside the API's resources."""
        return PathCheck(self, path)

    def group(self, group: str) -> GroupCheck:
        """Return a check of an API group."""
        return GroupCheck(self, group)

    def service_account(self, namespace: str, name: str) -> AuthorizerValue:
        """Return the decisions about a service account."""
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
        user = RequestUser(username=f"system:serviceaccount:{namespace}:{name}", groups=groups)
        return AuthorizerValue(self.authorizer, user)

    def decide(self, asked: AccessAttributes) -> DecisionValue:
        """Decide on one request."""
        is_trusted = self.authorizer.trusts(self.user)
        return DecisionValue(Decision(True) if is_trusted else self.authorizer.decide(asked))


class PathCheck(msgspec.Struct, frozen=True):
    """A check of a path."""

    value: AuthorizerValue
    url: str

    def check(self, verb: str) -> DecisionValue:
        """Decide whether the user may do this."""
        asked = AccessAttributes(user=self.value.user, verb=verb, path=self.url)
        return self.value.decide(asked)


class GroupCheck(msgspec.Struct, frozen=True):
    """A check of a group, before its resource is set."""

    value: AuthorizerValue
    api_group: str

    def resource(self, resource: str) -> ResourceCheck:
        """Return a check of a resource of the group."""
        return ResourceCheck(self.value, self.api_group, resource)


class ResourceCheck(msgspec.Struct, frozen=True):
    """A check of a resource; each part that is set returns a new one."""

    value: AuthorizerValue
    api_group: str
    resource: str
    part: str = ""
    in_namespace: str = ""
    object_name: str = ""

    def subresource(self, subresource: str) -> ResourceCheck:
        """Return the check of a subresource."""
        return msgspec.structs.replace(self, part=subresource)

    def namespace(self, namespace: str) -> ResourceCheck:
        """Return the check in a namespace."""
        return msgspec.structs.replace(self, in_namespace=namespace)

    def name(self, name: str) -> ResourceCheck:
        """Return the check of one object."""
        return msgspec.structs.replace(self, object_name=name)

    def field_selector(self, selector: str) -> ResourceCheck:
        """Return the same check: RBAC does not look at selectors."""
        return self

    def label_selector(self, selector: str) -> ResourceCheck:
        """Return the same check: RBAC does not look at selectors."""
        return self

    def check(self, verb: str) -> DecisionValue:
        """Decide whether the user may do this."""
        return self.value.decide(
            AccessAttributes(
                user=self.value.user,
                verb=verb,
                group=self.api_group,
                version="*",
                resource=self.resource,
                subresource=self.part,
                namespace=self.in_namespace,
                name=self.object_name,
            )
        )


class DecisionValue(msgspec.Struct, frozen=True):
    """The outcome of a check."""

    decision: Decision

    def allowed(self) -> bool:
        """Return whether it is allowed."""
        return self.decision.allowed

    def reason(self) -> str:
        """Return why."""
        return self.decision.reason

    def errored(self) -> bool:
        """Return False: a decision never fails."""
        return False

    def error(self) -> str:
        """Return "": a decision never fails."""
        return ""
