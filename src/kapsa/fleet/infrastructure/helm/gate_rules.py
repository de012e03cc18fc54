"""The requests that a run of helm may make, and those that are changed on their way to the API server.

CRDs are applied by the manager before helm runs, and are never taken away: helm deletes a CRD that is missing from
the next manifest, and every custom resource with it. The gate lets no such request through. The same goes for a
namespace, whose deletion takes whatever people have put into it.

The first revision of a blue-green release is stored at rest: zero replicas, and webhooks that match nothing. It ran
when a later deployment came, so a rollback to it wakes its objects on the way. And the fields that the deployment left
to their owners are left to them by its rollback, too, although the revision before still has them.
"""

import enum
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from kapsa.fleet.domain.field_paths import without_field
from kapsa.fleet.domain.rollout.plans import FieldConflict
from kapsa.fleet.infrastructure.helm.api_path import ApiPath, parse_path
from kapsa.fleet.infrastructure.operations.handover.idle_marks import (
    REPLICAS,
    active_webhooks,
    desired_replicas,
)

__all__ = ["GateRequest", "GateRuling", "RequestRefused", "Restoration", "judge_request"]

_READS = frozenset({"GET"})
_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_FORBIDDEN_SUBRESOURCES = frozenset({"exec", "attach", "portforward", "proxy", "token"})
"""Ways into containers, and to credentials that outlive the run. Helm needs none of them."""
_SCALED = frozenset({"deployments", "statefulsets"})
_WEBHOOKS = frozenset({"validatingwebhookconfigurations", "mutatingwebhookconfigurations"})


class RequestRefused(Exception):  # noqa: N818 - named after what happened
    """A request that the gate does not forward. The message is for the log of helm."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class GateRequest(msgspec.Struct, frozen=True):
    """A request of helm."""

    method: str
    target: str
    """The path and the query, as they were sent."""
    headers: Mapping[str, str] = {}
    body: bytes = b""

    @property
    def path(self) -> str:
        """The path alone."""
        return self.target.partition("?")[0]

    @property
    def query(self) -> list[tuple[str, str]]:
        """The parameters of the query."""
        return parse_qsl(self.target.partition("?")[2], keep_blank_values=True)


class Restoration(msgspec.Struct, frozen=True):
    """A rollback, whose objects are changed on their way."""

    left: tuple[FieldConflict, ...] = ()
    """Fields that stay with their owners."""


class GateRuling(enum.StrEnum):
    """The way that a request goes."""

    READ = "read"
    WATCH = "watch"
    WRITE = "write"
    TRY = "try"
    """A write that changes nothing: a dry run, or one that only asks a question."""


def judge_request(
    request: GateRequest, *, restoration: Restoration | None = None
) -> tuple[GateRuling, GateRequest]:
    """Return the way of a request, and the request as it is forwarded. A rollback has a restoration.

    Raises `RequestRefused` if the request may not be made.
    """
    if not request.target.startswith("/") or request.method not in _READS | _WRITES:
        raise RequestRefused(405, "MethodNotAllowed", f"{request.method} is not a method of the gate")
    path = parse_path(request.path)
    if path is not None and path.subresource in _FORBIDDEN_SUBRESOURCES:
        raise RequestRefused(403, "Forbidden", f"a Helm run may not use {path}")
    if request.method in _READS:
        watches = any(key == "watch" and value not in ("", "0", "false") for key, value in request.query)
        follows = path is not None and path.subresource == "log"
        return (GateRuling.WATCH if watches or follows else GateRuling.READ), request
    if path is None:
        raise RequestRefused(403, "Forbidden", f"{request.method} {request.path} is not a resource")
    return _judge_write(request, path, restoration)


def _judge_write(
    request: GateRequest, path: ApiPath, restoration: Restoration | None
) -> tuple[GateRuling, GateRequest]:
    if path.resource == "customresourcedefinitions" and path.group == "apiextensions.k8s.io":
        return GateRuling.TRY, _tried_crd(request, path)
    if path.resource == "namespaces" and not path.group and request.method == "DELETE":
        raise _kept(path, "namespace")
    if ("dryRun", "All") in request.query or path.group == "authorization.k8s.io":
        return GateRuling.TRY, request
    if restoration is not None and request.method != "DELETE" and not path.subresource:
        return GateRuling.WRITE, _without_left(_woken(request, path), path, restoration)
    return GateRuling.WRITE, request


def _kept(path: ApiPath, kind: str) -> RequestRefused:
    """Return the answer to the deletion of an object that is kept: as if it had been deleted before."""
    return RequestRefused(404, "NotFound", f"{path} is kept: a Helm run deletes no {kind}")


def _tried_crd(request: GateRequest, path: ApiPath) -> GateRequest:
    """Return the write of a CRD as a dry run."""
    if request.method == "DELETE":
        raise _kept(path, "CRD")
    query = "dryRun=All"
    if request.headers.get("Content-Type", "").startswith("application/apply-patch"):
        query += "&force=true"  # the manager owns its fields
    kept = "&".join(
        part
        for part in request.target.partition("?")[2].split("&")
        if part and part.partition("=")[0] not in ("dryRun", "force")
    )
    target = f"{request.path}?{kept}&{query}" if kept else f"{request.path}?{query}"
    return msgspec.structs.replace(request, target=target)


def _woken(request: GateRequest, path: ApiPath) -> GateRequest:
    """Return the write of an object that is stored at rest as it is when it runs."""
    scaled = path.group == "apps" and path.resource in _SCALED
    webhooks = path.group == "admissionregistration.k8s.io" and path.resource in _WEBHOOKS
    if not scaled and not webhooks:
        return request
    try:
        body = msgspec.json.decode(request.body, type=dict[str, Any])
        if webhooks:
            body["webhooks"] = active_webhooks(body["webhooks"])
        elif REPLICAS in body["metadata"]["annotations"]:
            body["spec"]["replicas"] = desired_replicas(body)
    except (msgspec.DecodeError, AttributeError, KeyError, TypeError):
        return request  # an object without annotations, or a part of one: it is not at rest
    return msgspec.structs.replace(request, body=msgspec.json.encode(body))


def _without_left(request: GateRequest, path: ApiPath, restoration: Restoration) -> GateRequest:
    """Return the write of an object without the fields that stay with their owners."""
    where = f"{path.namespace}/{path.name}" if path.namespace else path.name
    left = [each for each in restoration.left if each.object.partition(" ")[2] == where]
    if not left:
        return request
    try:
        body = msgspec.json.decode(request.body, type=dict[str, Any])
    except msgspec.DecodeError:
        return request
    for each in left:
        if body.get("kind") == each.object.partition(" ")[0]:
            body = without_field(body, each.field) or body
    return msgspec.structs.replace(request, body=msgspec.json.encode(body))
