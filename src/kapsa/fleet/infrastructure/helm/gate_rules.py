"""The requests that a run of helm may make, and those that are changed on their way to the API server.

CRDs are applied by the manager before helm runs, and are never taken away: helm deletes a CRD that is missing from
the next manifest, and every custom resource with it. The gate lets no such request through.
"""

import enum
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from kapsa.fleet.infrastructure.helm.api_path import ApiPath, parse_path

__all__ = ["GateRequest", "GateRuling", "RequestRefused", "judge_request"]

_READS = frozenset({"GET", "HEAD"})
_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_FORBIDDEN_SUBRESOURCES = frozenset({"exec", "attach", "portforward", "proxy", "token"})
"""Ways into containers, and to credentials that outlive the run. Helm needs none of them."""
_SCALED = frozenset({"deployments", "statefulsets", "replicasets"})


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


class GateRuling(enum.StrEnum):
    """The way that a request goes."""

    READ = "read"
    WATCH = "watch"
    WRITE = "write"
    TRY = "try"
    """A write that changes nothing: a dry run, or one that only asks a question."""


def judge_request(request: GateRequest, *, idle: bool) -> tuple[GateRuling, GateRequest]:
    """Return the way of a request, and the request as it is forwarded.

    In an idle run, workloads are created with zero replicas. The manifest that helm stores keeps their number.

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
    return _judge_write(request, path, idle)


def _judge_write(request: GateRequest, path: ApiPath, idle: bool) -> tuple[GateRuling, GateRequest]:
    if path.resource == "customresourcedefinitions" and path.group == "apiextensions.k8s.io":
        return GateRuling.TRY, _tried_crd(request, path)
    if ("dryRun", "All") in request.query or path.group == "authorization.k8s.io":
        return GateRuling.TRY, request
    if idle and path.group == "apps" and not path.subresource and request.method != "DELETE":
        if path.resource == "daemonsets":
            message = f"{path} cannot be installed idle: a DaemonSet has no replicas. Use another strategy"
            raise RequestRefused(422, "Invalid", message)
        if path.resource in _SCALED:
            return GateRuling.WRITE, _at_zero(request)
    return GateRuling.WRITE, request


def _tried_crd(request: GateRequest, path: ApiPath) -> GateRequest:
    """Return the write of a CRD as a dry run. Its deletion is answered as if it had been deleted before."""
    if request.method == "DELETE":
        raise RequestRefused(404, "NotFound", f"{path} is kept: a Helm run deletes no CRD")
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


def _at_zero(request: GateRequest) -> GateRequest:
    """Return the write of a workload with zero replicas."""
    try:
        body: Any = msgspec.json.decode(request.body)
    except msgspec.DecodeError:
        body = None
    spec = body.get("spec") if isinstance(body, dict) else None
    if not isinstance(body, dict) or not isinstance(spec, dict | None):
        message = (
            f"{request.path}: the body is not the JSON of an object, so its replicas cannot be set to zero"
        )
        raise RequestRefused(422, "Invalid", message)
    return msgspec.structs.replace(
        request, body=msgspec.json.encode({**body, "spec": {**(spec or {}), "replicas": 0}})
    )
