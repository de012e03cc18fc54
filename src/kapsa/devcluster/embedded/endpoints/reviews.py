"""Reviews: access, subject and token reviews, which are answered and never stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kapsa.devcluster.embedded.apply.field_manager import track_update
from kapsa.devcluster.embedded.authentication.tokens import TokenError, Tokens
from kapsa.devcluster.embedded.authorization.authorizer import Authorizer
from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.endpoints.review_validation import (
    validate_access_review,
    validate_local_review,
    validate_self_review,
)
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.wire import status_errors as errors
from kapsa.devcluster.wire.authorization import AccessAttributes
from kapsa.devcluster.wire.exchange import RequestUser
from kapsa.schemas.field_errors import FieldError

__all__ = ["REVIEWS", "Reviewer", "review"]

Object = dict[str, Any]


class Reviewer(msgspec.Struct, frozen=True):
    """The authorizer and the tokens of a server, and the user who requests a review."""

    authorizer: Authorizer
    tokens: Tokens
    user: RequestUser


Review = Callable[[Reviewer, Object, str], Object]


def review(
    backend: Backend,
    reviewer: Reviewer,
    info: ResourceInfo,
    obj: Object,
    namespace: str,
    manager: str,
) -> Object:
    """Return a review with its status. Raises StatusError 400 or 422 for an invalid one."""
    status = REVIEWS[info.group, info.resource](reviewer, obj, namespace)
    if info.resource == "selfsubjectrulesreviews":
        # Unlike the other reviews, this one does not return its spec.
        return {
            "kind": info.kind,
            "apiVersion": info.api_version,
            "metadata": {},
            "spec": {},
            "status": status,
        }
    tracked = track_update(
        None, obj, manager=manager, schema=info.schema, api_version=info.api_version, now=backend.now()
    )
    if namespace:
        tracked["metadata"] = {**tracked["metadata"], "namespace": namespace}
    if info.resource == "selfsubjectreviews":
        tracked["metadata"] = {**tracked["metadata"], "creationTimestamp": backend.now()}
    return {**tracked, "kind": info.kind, "apiVersion": info.api_version, "status": status}


def _self_access(reviewer: Reviewer, obj: Object, namespace: str) -> Object:
    _reject(validate_self_review(obj))
    return _allowed(reviewer.authorizer, reviewer.user, obj["spec"])


def _access(reviewer: Reviewer, obj: Object, namespace: str) -> Object:
    _reject(validate_access_review(obj))
    return _allowed(reviewer.authorizer, _subject(obj["spec"]), obj["spec"])


def _local_access(reviewer: Reviewer, obj: Object, namespace: str) -> Object:
    _reject(validate_local_review(obj, namespace))
    return _allowed(reviewer.authorizer, _subject(obj["spec"]), obj["spec"])


def _subject(spec: Object) -> RequestUser:
    return RequestUser(
        username=spec.get("user", ""),
        uid=spec.get("uid", ""),
        groups=tuple(spec.get("groups") or ()),
        extra=spec.get("extra") or {},
    )


class _NoKind(msgspec.Struct, frozen=True):
    """The kind of an error about a review, which the real server leaves empty."""

    group: str = "authorization.k8s.io"
    resource: str = ""
    kind: str = ""


def _reject(problems: list[FieldError]) -> None:
    if problems:
        raise errors.invalid(_NoKind(), "", problems)


def _allowed(authorizer: Authorizer, user: RequestUser, spec: Object) -> Object:
    resource = spec.get("resourceAttributes")
    if resource is not None:
        attributes = AccessAttributes(
            user=user,
            verb=resource.get("verb", ""),
            group=resource.get("group", ""),
            version=resource.get("version", ""),
            resource=resource.get("resource", ""),
            subresource=resource.get("subresource", ""),
            namespace=resource.get("namespace", ""),
            name=resource.get("name", ""),
        )
    else:
        path = spec["nonResourceAttributes"]
        attributes = AccessAttributes(user=user, verb=path.get("verb", ""), path=path.get("path", ""))
    decision = authorizer.decide(attributes)
    return (
        {"allowed": decision.allowed, "reason": decision.reason}
        if decision.reason
        else {"allowed": decision.allowed}
    )


def _rules(reviewer: Reviewer, obj: Object, namespace: str) -> Object:
    if not (obj.get("spec") or {}).get("namespace"):
        raise errors.bad_request("no namespace on request")
    return reviewer.authorizer.rules_review(reviewer.user, obj["spec"]["namespace"])


def _self_subject(reviewer: Reviewer, obj: Object, namespace: str) -> Object:
    return {"userInfo": _user_info(reviewer.user)}


def _user_info(user: RequestUser) -> Object:
    info: Object = {"username": user.username, "groups": list(user.groups)}
    if user.uid:
        info["uid"] = user.uid
    if user.extra:
        info["extra"] = user.extra
    return info


def _token(reviewer: Reviewer, obj: Object, namespace: str) -> Object:
    if not (obj.get("spec") or {}).get("token"):
        raise errors.bad_request("token is required for TokenReview in authentication")
    try:
        user, audiences = reviewer.tokens.accept(obj["spec"]["token"], obj["spec"].get("audiences") or ())
    except TokenError as error:
        return {"user": {}, "error": str(error)}
    return {"authenticated": True, "user": _user_info(user), "audiences": audiences}


_AUTHORIZATION, _AUTHENTICATION = "authorization.k8s.io", "authentication.k8s.io"
REVIEWS: dict[tuple[str, str], Review] = {
    (_AUTHORIZATION, "selfsubjectaccessreviews"): _self_access,
    (_AUTHORIZATION, "subjectaccessreviews"): _access,
    (_AUTHORIZATION, "localsubjectaccessreviews"): _local_access,
    (_AUTHORIZATION, "selfsubjectrulesreviews"): _rules,
    (_AUTHENTICATION, "selfsubjectreviews"): _self_subject,
    (_AUTHENTICATION, "tokenreviews"): _token,
}
