"""Authorization: the attributes of a request, and policies that decide on them."""

from __future__ import annotations

from collections.abc import Callable

from kapsa.devcluster.wire.exchange import RequestUser

__all__ = ["AccessAttributes", "AccessPolicy"]


class AccessAttributes:
    """The user, verb and object of a request, as an authorization policy sees them."""

    __slots__ = ("group", "name", "namespace", "path", "resource", "subresource", "user", "verb", "version")

    def __init__(
        self,
        *,
        user: RequestUser,
        verb: str,
        group: str = "",
        version: str = "",
        resource: str = "",
        subresource: str = "",
        namespace: str = "",
        name: str = "",
        path: str = "",
    ) -> None:
        self.user = user
        self.verb = verb
        self.group = group
        self.version = version
        self.resource = resource
        self.subresource = subresource
        self.namespace = namespace
        self.name = name
        self.path = path


AccessPolicy = Callable[[AccessAttributes], bool]
"""Returns whether a request for a resource is allowed. A devcluster without a policy decides by RBAC."""
