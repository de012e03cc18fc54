"""The values that expressions see of one request."""

from __future__ import annotations

from typing import Any

from kapsa.devcluster.embedded.admission.policies.authorizer_values import AuthorizerValue, ResourceCheck
from kapsa.devcluster.embedded.admission.webhook_match import Invocation, ReviewedRequest
from kapsa.devcluster.embedded.authorization.authorizer import Authorizer

__all__ = ["request_values"]

Object = dict[str, Any]


def request_values(
    reviewed: ReviewedRequest,
    invocation: Invocation,
    authorizer: Authorizer,
    *,
    parameter: Object | None = None,
    namespace: Object | None = None,
) -> dict[str, Any]:
    """Return the variables of an expression by their names."""
    request = invocation.review(reviewed, "")["request"]
    for field in ("uid", "object", "oldObject"):
        request.pop(field, None)
    user = AuthorizerValue(authorizer, reviewed.user)
    resource = ResourceCheck(
        user,
        reviewed.info.group,
        reviewed.info.resource,
        reviewed.subresource,
        reviewed.namespace,
        reviewed.name,
    )
    return {
        "object": invocation.object,
        "oldObject": invocation.old,
        "request": request,
        "params": parameter,
        "namespaceObject": namespace,
        "authorizer": user,
        "authorizer.requestResource": resource,
    }
