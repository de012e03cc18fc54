"""Reviews: questions a client posts and gets answered, of which nothing is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .backend import Attributes, Backend
from .exchange import UserInfo
from .registry import ResourceInfo

__all__ = ["REVIEWS", "answer"]

Object = dict[str, Any]
Review = Callable[[Backend, UserInfo, Object, str], Object]


def answer(backend: Backend, info: ResourceInfo, user: UserInfo, obj: Object, namespace: str) -> Object:
    """The review with its status filled in."""
    status = REVIEWS[info.group, info.resource](backend, user, obj, namespace)
    metadata = {"creationTimestamp": None, **obj.get("metadata", {})}
    return {
        "kind": info.kind,
        "apiVersion": info.api_version,
        "metadata": metadata,
        **_spec(obj),
        "status": status,
    }


def _spec(obj: Object) -> Object:
    return {"spec": obj["spec"]} if "spec" in obj else {}


def _allowed(backend: Backend, user: UserInfo, spec: Object, namespace: str = "") -> Object:
    resource = spec.get("resourceAttributes")
    path = spec.get("nonResourceAttributes")
    if resource is not None:
        attributes = Attributes(
            user=user,
            verb=resource.get("verb", ""),
            group=resource.get("group", ""),
            version=resource.get("version", ""),
            resource=resource.get("resource", ""),
            subresource=resource.get("subresource", ""),
            namespace=resource.get("namespace", namespace),
            name=resource.get("name", ""),
        )
    else:
        path = path or {}
        attributes = Attributes(user=user, verb=path.get("verb", ""), path=path.get("path", ""))
    if backend.policy is None or backend.policy(attributes):
        return {"allowed": True}
    return {"allowed": False}


def _self_access(backend: Backend, user: UserInfo, obj: Object, namespace: str) -> Object:
    return _allowed(backend, user, obj.get("spec") or {})


def _access(backend: Backend, user: UserInfo, obj: Object, namespace: str) -> Object:
    spec = obj.get("spec") or {}
    subject = UserInfo(
        username=spec.get("user", ""),
        uid=spec.get("uid", ""),
        groups=tuple(spec.get("groups") or ()),
        extra=spec.get("extra") or {},
    )
    return _allowed(backend, subject, spec, namespace)


def _rules(backend: Backend, user: UserInfo, obj: Object, namespace: str) -> Object:
    if backend.policy is None:
        everything = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
        paths = [{"verbs": ["*"], "nonResourceURLs": ["*"]}]
        return {"resourceRules": everything, "nonResourceRules": paths, "incomplete": False}
    message = "the devcluster's policy is a function, which cannot be listed as rules"
    return {"resourceRules": [], "nonResourceRules": [], "incomplete": True, "evaluationError": message}


def _self_subject(backend: Backend, user: UserInfo, obj: Object, namespace: str) -> Object:
    info: Object = {"username": user.username, "groups": list(user.groups)}
    if user.uid:
        info["uid"] = user.uid
    if user.extra:
        info["extra"] = user.extra
    return {"userInfo": info}


def _token(backend: Backend, user: UserInfo, obj: Object, namespace: str) -> Object:
    # The devcluster issues no tokens, so it knows none.
    return {"user": {}, "error": "[invalid bearer token, token lookup failed]"}


_AUTHORIZATION, _AUTHENTICATION = "authorization.k8s.io", "authentication.k8s.io"
REVIEWS: dict[tuple[str, str], Review] = {
    (_AUTHORIZATION, "selfsubjectaccessreviews"): _self_access,
    (_AUTHORIZATION, "subjectaccessreviews"): _access,
    (_AUTHORIZATION, "localsubjectaccessreviews"): _access,
    (_AUTHORIZATION, "selfsubjectrulesreviews"): _rules,
    (_AUTHENTICATION, "selfsubjectreviews"): _self_subject,
    (_AUTHENTICATION, "tokenreviews"): _token,
}
