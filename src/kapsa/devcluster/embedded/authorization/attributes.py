"""The attributes of a request that authorization looks at."""

from __future__ import annotations

from kapsa.devcluster.embedded.requests.field_terms import SelectorError, parse_terms, required_name
from kapsa.devcluster.wire.authorization import AccessAttributes
from kapsa.devcluster.wire.exchange import ADMIN, Request, RequestUser
from kapsa.devcluster.wire.query import parse_query
from kapsa.devcluster.wire.routes import ResourceRoute, verb_of

__all__ = ["attributes_of"]

_READS = ("list", "watch")
_BY_NAME = "metadata.name"


def attributes_of(
    request: Request, route: ResourceRoute | None, user: RequestUser | None = None
) -> AccessAttributes:
    """Return what a request asks for, in the terms of roles. Without a route it is a path."""
    user = user or request.user or ADMIN
    if route is None:
        return AccessAttributes(user=user, verb=request.method.lower(), path=request.path or "/")
    verb = verb_of(request, route)
    if request.method == "HEAD":
        verb = "get" if route.name else "list"
    name = route.name
    if not name and verb in _READS and _BY_NAME in request.query:
        name = _selected_name(request.query)
    namespace = route.namespace
    if route.resource == "namespaces" and not namespace:
        # A role in a namespace can allow requests about the namespace itself.
        namespace = route.name
    return AccessAttributes(
        user=user,
        verb=verb,
        group=route.group,
        version=route.version,
        resource=route.resource,
        subresource=route.subresource,
        namespace=namespace,
        name=name,
    )


def _selected_name(query: str) -> str:
    """Return the name that a field selector requires, or an empty string."""
    try:
        return required_name(parse_terms(parse_query(query).get("fieldSelector", [""])[0]))
    except SelectorError:
        # The request itself fails; until then it is one for all objects.
        return ""
