"""The webhooks that match a request, and the AdmissionReviews they get."""

from __future__ import annotations

from typing import Any

import msgspec

from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.kinds.labels import matches
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.wire.exchange import RequestUser

__all__ = ["Invocation", "ReviewedRequest", "in_version", "invocation_of", "rule_matches"]

Object = dict[str, Any]

# Webhooks and policies never apply to their own configurations: a broken one could not be removed.
_EXEMPT = frozenset(
    {
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
    }
)


class ReviewedRequest(msgspec.Struct, kw_only=True):
    """One request on its way through admission. `object` changes as webhooks change it."""

    info: ResourceInfo
    operation: str
    namespace: str
    name: str
    user: RequestUser
    options: Object
    subresource: str = ""
    dry_run: bool = False
    object: Object | None = None
    old: Object | None = None

    @property
    def shown_name(self) -> str:
        """The name that errors show; a name that is yet to be generated shows its prefix."""
        meta = (self.object or self.old or {}).get("metadata") or {}
        return self.name or meta.get("name") or meta.get("generateName") or "Unknown"


class Invocation(msgspec.Struct, kw_only=True):
    """One call of a webhook, in a version that its rules match."""

    webhook: Object
    info: ResourceInfo
    object: Object | None
    old: Object | None

    def review(self, reviewed: ReviewedRequest, uid: str) -> Object:
        """Return the AdmissionReview to send."""
        versions = self.webhook.get("admissionReviewVersions") or ["v1"]
        version = next((v for v in versions if v in ("v1", "v1beta1")), "v1")
        request: Object = {
            "uid": uid,
            "kind": _kind(self.info),
            "resource": _resource(self.info),
            "requestKind": _kind(reviewed.info),
            "requestResource": _resource(reviewed.info),
        }
        if reviewed.subresource:
            request["subResource"] = request["requestSubResource"] = reviewed.subresource
        if reviewed.name:
            request["name"] = reviewed.name
        namespace = (
            reviewed.name
            if reviewed.info.resource == "namespaces" and not reviewed.info.group
            else reviewed.namespace
        )
        if namespace:
            request["namespace"] = namespace
        request.update(
            operation=reviewed.operation,
            userInfo=_user(reviewed.user),
            object=self.object,
            oldObject=self.old,
            dryRun=reviewed.dry_run,
            options=reviewed.options,
        )
        return {"kind": "AdmissionReview", "apiVersion": f"admission.k8s.io/{version}", "request": request}


async def invocation_of(backend: Backend, reviewed: ReviewedRequest, webhook: Object) -> Invocation | None:
    """Return the call of a webhook for a request; None when its rules and selectors do not match.

    Raises StatusError when the object cannot be converted to the webhook's version.
    """
    info = reviewed.info
    if info.group == "admissionregistration.k8s.io" and info.resource in _EXEMPT:
        return None
    if not _namespace_selected(backend, reviewed, webhook) or not _object_selected(reviewed, webhook):
        return None
    target = _matching_version(backend, reviewed, webhook)
    if target is None:
        return None
    return Invocation(
        webhook=webhook,
        info=target,
        object=await in_version(reviewed.info, target, reviewed.object),
        old=await in_version(reviewed.info, target, reviewed.old),
    )


# Rules


def _matching_version(backend: Backend, reviewed: ReviewedRequest, webhook: Object) -> ResourceInfo | None:
    rules = webhook.get("rules") or ()
    if any(rule_matches(rule, reviewed, reviewed.info) for rule in rules):
        return reviewed.info
    if webhook.get("matchPolicy", "Equivalent") != "Equivalent":
        return None
    for other in backend.registry.versions_of(reviewed.info.group, reviewed.info.resource):
        if other is not reviewed.info and any(rule_matches(rule, reviewed, other) for rule in rules):
            return other
    return None


def rule_matches(rule: Object, reviewed: ReviewedRequest, info: ResourceInfo) -> bool:
    """Return whether a rule covers a request for this version of its resource."""
    scope = rule.get("scope") or "*"
    namespaced = info.namespaced
    return (
        _listed(rule.get("operations"), reviewed.operation)
        and _listed(rule.get("apiGroups"), info.group)
        and _listed(rule.get("apiVersions"), info.version)
        and any(
            _resource_matches(entry, info.resource, reviewed.subresource)
            for entry in rule.get("resources") or ()
        )
        and (scope == "*" or (scope == "Namespaced") == namespaced)
    )


def _listed(values: list[str] | None, value: str) -> bool:
    return values is not None and ("*" in values or value in values)


def _resource_matches(entry: str, resource: str, subresource: str) -> bool:
    name, _, below = entry.partition("/")
    if name not in ("*", resource):
        return False
    if entry == "*/*":
        return True
    return below in ("*", subresource) if "/" in entry else not subresource


# Selectors


def _namespace_selected(backend: Backend, reviewed: ReviewedRequest, webhook: Object) -> bool:
    selector = webhook.get("namespaceSelector")
    if not selector:
        return True
    if (reviewed.info.group, reviewed.info.resource) == ("", "namespaces"):
        subject = reviewed.object or reviewed.old or {}
        return matches(selector, (subject.get("metadata") or {}).get("labels") or {})
    if not reviewed.info.namespaced:
        return True
    stored = backend.store.collection("", "namespaces").get(reviewed.namespace)
    return stored is not None and matches(selector, stored.labels)


def _object_selected(reviewed: ReviewedRequest, webhook: Object) -> bool:
    selector = webhook.get("objectSelector")
    if not selector:
        return True
    subjects = [subject for subject in (reviewed.object, reviewed.old) if subject is not None]
    return any(matches(selector, (s.get("metadata") or {}).get("labels") or {}) for s in subjects)


# Forms


async def in_version(source: ResourceInfo, target: ResourceInfo, obj: Object | None) -> Object | None:
    """Return a copy of an object of one version in another version of the same resource."""
    if obj is None:
        return None
    copied: Object = msgspec.json.decode(msgspec.json.encode(obj))
    # At least one of the two versions is not the stored one, and has the converter.
    converter = source.converter or target.converter
    if target is not source and converter is not None:
        copied = {"kind": source.kind, **_without_type(copied), "apiVersion": source.api_version}
        copied = await converter.convert(copied, target)
    return {"kind": target.kind, "apiVersion": target.api_version, **_without_type(copied)}


def _without_type(obj: Object) -> Object:
    return {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}


def _kind(info: ResourceInfo) -> Object:
    return {"group": info.group, "version": info.version, "kind": info.kind}


def _resource(info: ResourceInfo) -> Object:
    return {"group": info.group, "version": info.version, "resource": info.resource}


def _user(user: RequestUser) -> Object:
    """authentication.k8s.io/v1 UserInfo."""
    info: Object = {"username": user.username}
    if user.uid:
        info["uid"] = user.uid
    if user.groups:
        info["groups"] = list(user.groups)
    if user.extra:
        info["extra"] = user.extra
    return info
