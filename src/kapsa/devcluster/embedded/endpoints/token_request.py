"""TokenRequests: tokens of a ServiceAccount for chosen audiences, a time, and an object they are bound to."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from kapsa.devcluster.embedded.apply.field_manager import track_update
from kapsa.devcluster.embedded.authentication.tokens import ISSUER, BoundObject, Tokens
from kapsa.devcluster.embedded.codec.canonical import timestamp
from kapsa.devcluster.embedded.codec.posted_kinds import TOKEN_REQUEST
from kapsa.devcluster.embedded.codec.stored_form import decode
from kapsa.devcluster.embedded.endpoints.resource_request import ResourceRequest
from kapsa.devcluster.embedded.replies.negotiation import negotiate
from kapsa.devcluster.embedded.replies.writer import reply_document
from kapsa.devcluster.embedded.requests.parameters import WriteMethod, write_parameters
from kapsa.devcluster.embedded.storage.store import Stored
from kapsa.devcluster.wire import status_errors as errors
from kapsa.devcluster.wire.exchange import Reply
from kapsa.schemas import field_errors

__all__ = ["create_token"]

Object = dict[str, Any]
_KIND = msgspec.structs.replace(TOKEN_REQUEST, resource=TOKEN_REQUEST.kind)
"""The kind in errors, where the real server uses it in place of a resource."""
_DEFAULT_SECONDS = 3600
_SHORTEST, _LONGEST = 600, 1 << 32
_EXTENDED_FROM = 3607
"""Lifetime that the kubelet requests for pods. Such a token lives longer, for clients that do not reload it."""
_EXTENDED_TO = 365 * 24 * 3600
_BOUND = {"Pod": ("pod", "pods"), "Secret": ("secret", "secrets"), "Node": ("node", "nodes")}


async def create_token(request: ResourceRequest, tokens: Tokens) -> Reply:
    """Issue the token that the body requests. Raises StatusError as the real server does."""
    form = negotiate(request.request)
    parameters = write_parameters(request.request, WriteMethod.CREATE)
    posted = request.posted(TOKEN_REQUEST)
    spec = {"expirationSeconds": _DEFAULT_SECONDS, **(posted.get("spec") or {})}
    metadata = posted.get("metadata") or {}
    tracked = track_update(
        None,
        {"metadata": metadata, "spec": {**spec}},
        manager=parameters.manager,
        schema=TOKEN_REQUEST.schema,
        subresource="token",
        api_version=TOKEN_REQUEST.api_version,
        now=request.backend.now(),
    )
    account = _account(request, metadata)
    _validate(spec)
    bound = _bound_object(request, spec.get("boundObjectRef"))
    audiences, seconds = spec.get("audiences") or [ISSUER], spec["expirationSeconds"]
    warn_after = 0
    lifetime = seconds
    if (
        bound is not None
        and bound.field == "pod"
        and seconds == _EXTENDED_FROM
        and set(audiences) == {ISSUER}
    ):
        lifetime, warn_after = _EXTENDED_TO, seconds
    token = tokens.issue(account, audiences=audiences, seconds=lifetime, warn_after=warn_after, bound=bound)
    expires = timestamp(request.backend.clock.now() + timedelta(seconds=seconds))
    document = {
        "kind": TOKEN_REQUEST.kind,
        "apiVersion": TOKEN_REQUEST.api_version,
        "metadata": {
            "name": account.name,
            "namespace": account.namespace,
            "uid": account.uid,
            "creationTimestamp": request.backend.now(),
            **{key: tracked["metadata"][key] for key in ("managedFields",) if key in tracked["metadata"]},
        },
        "spec": {
            "audiences": audiences,
            "expirationSeconds": seconds,
            "boundObjectRef": spec.get("boundObjectRef"),
        },
        "status": {"token": token, "expirationTimestamp": expires},
    }
    return reply_document(201, document, form, request.warnings)


def _account(request: ResourceRequest, metadata: Object) -> Stored:
    name = request.route.name
    if metadata.get("name") not in (None, "", name):
        detail = "must match the service account name if specified"
        raise errors.invalid(
            TOKEN_REQUEST, name, [field_errors.invalid("metadata.name", metadata["name"], detail)]
        )
    account = request.stored()
    uid = metadata.get("uid")
    if uid and uid != account.uid:
        why = f"the UID in the token request ({uid}) does not match the UID of the service account ({account.uid})"
        raise errors.conflict(_KIND, name, why)
    return account


def _validate(spec: Object) -> None:
    seconds, problem = spec["expirationSeconds"], ""
    if seconds < _SHORTEST:
        problem = "may not specify a duration less than 10 minutes"
    elif seconds > _LONGEST:
        problem = "may not specify a duration larger than 2^32 seconds"
    if problem:
        raise errors.invalid(
            TOKEN_REQUEST, "", [field_errors.invalid("spec.expirationSeconds", seconds, problem)]
        )


def _bound_object(request: ResourceRequest, reference: Object | None) -> BoundObject | None:
    if reference is None:
        return None
    kind, version, name = (reference.get(key) or "" for key in ("kind", "apiVersion", "name"))
    group, _, plain = version.rpartition("/")
    if group or kind not in _BOUND:
        raise errors.bad_request(f"cannot bind token to object of type {group}/{plain}, Kind={kind}")
    field, resource = _BOUND[kind]
    info = request.backend.registry.get("", "v1", resource)
    stored = request.backend.collection(info).get(info.object_key(request.route.namespace, name))
    if stored is None:
        raise errors.not_found(info, name)
    node = _node_of(request, stored) if field == "pod" else None
    if reference.get("uid") not in (None, "", stored.uid):
        why = (
            f"the UID in the bound object reference ({reference['uid']}) does not match the UID in record. "
            "The object might have been deleted and then recreated"
        )
        raise errors.conflict(msgspec.structs.replace(_KIND, group="", resource=kind), name, why)
    return BoundObject(field, name, stored.uid, node)


def _node_of(request: ResourceRequest, stored: Stored) -> tuple[str, str] | None:
    """Return name and UID of a pod's node. Raises StatusError 400 for a pod of another account."""
    spec = decode(stored)["spec"]
    if spec.get("serviceAccountName") != request.route.name:
        raise errors.bad_request(
            f'cannot bind token for serviceaccount "{request.route.name}" to pod running with different '
            "serviceaccount name."
        )
    name = spec.get("nodeName")
    if not name:
        return None
    node = request.backend.store.collection("", "nodes").get(name)
    return name, node.uid if node is not None else ""
