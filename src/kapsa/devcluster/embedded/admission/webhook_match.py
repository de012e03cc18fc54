"""Which webhooks a request concerns, and what they are told of it."""

from __future__ import annotations

from typing import Any

import msgspec

from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.kinds.labels import matches
from kapsa.devcluster.embedded.kinds.registry import ResourceInfo
from kapsa.devcluster.wire.exchange import RequestUser
from kapsa.devcluster.wire.status_errors import forbidden
from kapsa.schemas.cel.expressions import compile_expression

__all__ = ["Invocation", "ReviewedRequest", "in_version", "invocation_of"]

Object = dict[str, Any]

# Webhooks can never be asked about themselves: a broken one could not be removed.
_EXEMPT = frozenset({"mutatingwebhookconfigurations", "validatingwebhookconfigurations"})


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


class Invocation(msgspec.Struct, kw_only=True):
    """One webhook that must be asked, in the version it wants to be asked in."""

    webhook: Object
    info: ResourceInfo
    object: Object | None
    old: Object | None

    def review(self, asked: ReviewedRequest, uid: str) -> Object:
        """The AdmissionReview to send."""
        versions = self.webhook.get("admissionReviewVersions") or ["v1"]
        version = next((v for v in versions if v in ("v1", "v1beta1")), "v1")
        request: Object = {
            "uid": uid,
            "kind": _kind(self.info),
            "resource": _resource(self.info),
            "requestKind": _kind(asked.info),
            "requestResource": _resource(asked.info),
        }
        if asked.subresource:
            request["subResource"] = request["requestSubResource"] = asked.subresource
        if asked.name:
            request["name"] = asked.name
        namespace = (
            asked.name if asked.info.resource == "namespaces" and not asked.info.group else asked.namespace
        )
        if namespace:
            request["namespace"] = namespace
        request.update(
            operation=asked.operation,
            userInfo=_user(asked.user),
            object=self.object,
            oldObject=self.old,
            dryRun=asked.dry_run,
            options=asked.options,
        )
        return {"kind": "AdmissionReview", "apiVersion": f"admission.k8s.io/{version}", "request": request}


async def invocation_of(backend: Backend, asked: ReviewedRequest, webhook: Object) -> Invocation | None:
    """The call a webhook is due for this request; None when it does not concern it.

    :raises ApiError: when a match condition cannot be evaluated and the webhook must not be skipped, or the object
        cannot be converted to the version that the webhook wants.
    """
    info = asked.info
    if info.group == "admissionregistration.k8s.io" and info.resource in _EXEMPT:
        return None
    if not _namespace_selected(backend, asked, webhook) or not _object_selected(asked, webhook):
        return None
    target = _matching_version(backend, asked, webhook)
    if target is None:
        return None
    invocation = Invocation(
        webhook=webhook,
        info=target,
        object=await in_version(asked.info, target, asked.object),
        old=await in_version(asked.info, target, asked.old),
    )
    return invocation if _conditions_hold(asked, invocation) else None


# -- rules ----------------------------------------------------------------------------------------------------


def _matching_version(backend: Backend, asked: ReviewedRequest, webhook: Object) -> ResourceInfo | None:
    rules = webhook.get("rules") or ()
    if any(_rule_matches(rule, asked, asked.info) for rule in rules):
        return asked.info
    if webhook.get("matchPolicy", "Equivalent") != "Equivalent":
        return None
    for other in backend.registry.versions_of(asked.info.group, asked.info.resource):
        if other is not asked.info and any(_rule_matches(rule, asked, other) for rule in rules):
            return other
    return None


def _rule_matches(rule: Object, asked: ReviewedRequest, info: ResourceInfo) -> bool:
    scope = rule.get("scope") or "*"
    namespaced = info.namespaced
    return (
        _listed(rule.get("operations"), asked.operation)
        and _listed(rule.get("apiGroups"), info.group)
        and _listed(rule.get("apiVersions"), info.version)
        and any(
            _resource_matches(entry, info.resource, asked.subresource)
            for entry in rule.get("resources") or ()
        )
        and (scope == "*" or (scope == "Namespaced") == namespaced)
    )


def _listed(values: list[str] | None, wanted: str) -> bool:
    return values is not None and ("*" in values or wanted in values)


def _resource_matches(entry: str, resource: str, subresource: str) -> bool:
    wanted, _, below = entry.partition("/")
    if wanted not in ("*", resource):
        return False
    if entry == "*/*":
        return True
    return below in ("*", subresource) if "/" in entry else not subresource


# -- selectors ------------------------------------------------------------------------------------------------


def _namespace_selected(backend: Backend, asked: ReviewedRequest, webhook: Object) -> bool:
    selector = webhook.get("namespaceSelector")
    if not selector:
        return True
    if (asked.info.group, asked.info.resource) == ("", "namespaces"):
        subject = asked.object or asked.old or {}
        return matches(selector, (subject.get("metadata") or {}).get("labels") or {})
    if not asked.info.namespaced:
        return True
    stored = backend.store.collection("", "namespaces").get(asked.namespace)
    return stored is not None and matches(selector, stored.labels)


def _object_selected(asked: ReviewedRequest, webhook: Object) -> bool:
    selector = webhook.get("objectSelector")
    if not selector:
        return True
    subjects = [subject for subject in (asked.object, asked.old) if subject is not None]
    return any(matches(selector, (s.get("metadata") or {}).get("labels") or {}) for s in subjects)


# -- match conditions -----------------------------------------------------------------------------------------


def _conditions_hold(asked: ReviewedRequest, invocation: Invocation) -> bool:
    webhook = invocation.webhook
    conditions = webhook.get("matchConditions") or ()
    if not conditions:
        return True
    variables = {
        "object": invocation.object,
        "oldObject": invocation.old,
        "request": invocation.review(asked, "")["request"],
    }
    troubles = []
    for condition in conditions:
        try:
            if not _evaluate(condition["expression"], variables):
                return False
        except (ValueError, TypeError, RuntimeError) as error:
            troubles.append(f"expression '{condition['expression']}' resulted in error: {error}")
    if not troubles:
        return True
    if webhook.get("failurePolicy") == "Ignore":
        return False
    raise forbidden(asked.info, asked.name, ", ".join(troubles))


def _evaluate(expression: str, variables: Object) -> bool:
    program = compile_expression(expression, tuple((name, "dyn") for name in variables))
    return bool(program.evaluate(variables))


# -- forms ----------------------------------------------------------------------------------------------------


async def in_version(source: ResourceInfo, target: ResourceInfo, obj: Object | None) -> Object | None:
    """A copy of an object of one version, in another one of the same resource."""
    if obj is None:
        return None
    copied: Object = msgspec.json.decode(msgspec.json.encode(obj))
    # Of two versions that a webhook converts between, one is not the stored one: that has the converter.
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
