"""Status errors with the reasons, codes and messages of kube-apiserver."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import msgspec

from kapsa.devcluster.wire.authorization import AccessAttributes
from kapsa.devcluster.wire.exchange import Reply
from kapsa.schemas.go_format import quote

__all__ = [
    "ErrorCause",
    "FieldProblem",
    "StatusError",
    "already_exists",
    "bad_request",
    "conflict",
    "expired",
    "forbidden",
    "gateway_timeout",
    "generate_name_conflict",
    "internal",
    "invalid",
    "method_not_allowed",
    "not_authorized",
    "not_found",
    "page_not_found",
    "resource_not_found",
    "too_large",
    "too_many_requests",
    "unauthorized",
    "unsupported_media_type",
]

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


class Named(Protocol):
    """The names of a resource that errors include."""

    @property
    def group(self) -> str: ...

    @property
    def resource(self) -> str: ...

    @property
    def kind(self) -> str: ...


class FieldProblem(Protocol):
    """A problem of one field."""

    @property
    def field(self) -> str: ...

    @property
    def reason(self) -> str: ...

    @property
    def message(self) -> str: ...


class ErrorCause(msgspec.Struct, frozen=True):
    """One entry of a Status' `details.causes`."""

    field: str
    reason: str
    message: str


class StatusError(Exception):
    """A request that fails with a Status object."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.metadata: dict[str, Any] = {}
        """The Status' list metadata: with an expired continue token, the next one."""
        self.headers = headers or {}

    def status(self) -> dict[str, Any]:
        """Return the `v1` Status that the client reads."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        status["code"] = self.code
        return status

    def reply(self) -> Reply:
        """Return the reply that carries the Status."""
        body = msgspec.json.encode(self.status()) + b"\n"
        return Reply(
            status=self.code, headers={"content-type": "application/json", **self.headers}, body=body
        )


class PlainError(Exception):
    """A request that fails with plain text: a path outside every API."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text

    def reply(self) -> Reply:
        """Return the reply that carries the text."""
        headers = {
            "content-type": "text/plain; charset=utf-8",
            "cache-control": "no-cache, private",
            "x-content-type-options": "nosniff",
        }
        return Reply(status=self.code, headers=headers, body=self.text.encode())


def qualified(resource: Named) -> str:
    """Return the resource with its group, such as `deployments.apps`; `pods` in the core group."""
    return f"{resource.resource}.{resource.group}" if resource.group else resource.resource


def qualified_kind(resource: Named) -> str:
    return f"{resource.kind}.{resource.group}" if resource.group else resource.kind


def _details(resource: Named, name: str, kind: str = "") -> dict[str, Any]:
    details: dict[str, Any] = {}
    if name:
        details["name"] = name
    if resource.group:
        details["group"] = resource.group
    if kind or resource.resource:
        details["kind"] = kind or resource.resource
    return details


def not_found(resource: Named, name: str) -> StatusError:
    message = f"{qualified(resource)} {quote(name)} not found"
    return StatusError(404, "NotFound", message, details=_details(resource, name))


def resource_not_found() -> StatusError:
    """Return the error for a resource that its served group-version does not have."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", details={})


def page_not_found() -> PlainError:
    return PlainError(404, "404 page not found\n")


def already_exists(resource: Named, name: str, *, deleting: bool = False) -> StatusError:
    """Return the error for a name in use; `deleting` if the object that has it is being deleted."""
    message = f"{qualified(resource)} {quote(name)} already exists"
    if deleting:
        message = f"object is being deleted: {message}"
    return StatusError(409, "AlreadyExists", message, details=_details(resource, name))


def generate_name_conflict(resource: Named, name: str) -> StatusError:
    message = f"{qualified(resource)} {quote(name)} already exists, the server was not able to generate a unique name for the object"
    details = {**_details(resource, name), "retryAfterSeconds": 1}
    return StatusError(409, "AlreadyExists", message, details=details, headers={"retry-after": "1"})


def conflict(
    resource: Named, name: str, why: str = MODIFIED, *, kind: str = "", path: str = ""
) -> StatusError:
    """Return the error for a write that conflicts with the stored object.

    `kind` or `path` replace the resource where the real server names the kind, or a subresource.
    """
    if path:
        message = f"Operation cannot be fulfilled on {path} {quote(name)}: {why}"
        return StatusError(409, "Conflict", message, details=_details(resource, name, path))
    what = (f"{kind}.{resource.group}" if resource.group else kind) if kind else qualified(resource)
    message = f"Operation cannot be fulfilled on {what} {quote(name)}: {why}"
    return StatusError(409, "Conflict", message, details=_details(resource, name, kind))


def forbidden(resource: Named, name: str, why: str, *, causes: Sequence[ErrorCause] = ()) -> StatusError:
    what = qualified(resource)
    message = f"{what} {quote(name)} is forbidden: {why}" if name else f"{what} is forbidden: {why}"
    details = _details(resource, name)
    if causes:
        details["causes"] = [_cause(cause) for cause in causes]
    return StatusError(403, "Forbidden", message, details=details)


def not_authorized(denied: AccessAttributes, reason: str = "") -> StatusError:
    """Return the error for a request that is denied; the reason is what the authorizer adds to it."""
    user = f"User {quote(denied.user.username)} cannot {denied.verb}"
    if denied.path:
        why = f"{user} path {quote(denied.path)}"
    else:
        resource = f"{denied.resource}/{denied.subresource}" if denied.subresource else denied.resource
        where = f"in the namespace {quote(denied.namespace)}" if denied.namespace else "at the cluster scope"
        why = f"{user} resource {quote(resource)} in API group {quote(denied.group)} {where}"
    why = why.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    if reason:
        why = f"{why}: {reason}"
    if denied.path:
        return StatusError(403, "Forbidden", f"forbidden: {why}", details={})
    return forbidden(_Resource(denied.group, denied.resource), denied.name, why)


class _Resource(msgspec.Struct, frozen=True):
    group: str
    resource: str
    kind: str = ""


def invalid(resource: Named, name: str, problems: Iterable[FieldProblem]) -> StatusError:
    """Return the error for an invalid object, with one cause for each field problem."""
    problems = list(problems)
    texts = list(dict.fromkeys(f"{problem.field}: {problem.message}" for problem in problems))
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    message = f"{qualified_kind(resource)} {quote(name)} is invalid"
    if texts:
        message += f": {text}"
    details = _details(resource, name, resource.kind)
    if problems:
        details["causes"] = [_cause(problem) for problem in problems]
    return StatusError(422, "Invalid", message, details=details)


def _cause(problem: FieldProblem) -> dict[str, str]:
    cause = {"reason": problem.reason, "message": problem.message, "field": problem.field}
    return {key: value for key, value in cause.items() if value}


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def expired(message: str) -> StatusError:
    return StatusError(410, "Expired", message)


def unauthorized() -> StatusError:
    """Return the error for credentials that are not valid."""
    return StatusError(401, "Unauthorized", "Unauthorized")


def method_not_allowed() -> StatusError:
    return StatusError(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource", details={}
    )


def unsupported_media_type(message: str) -> StatusError:
    return StatusError(415, "UnsupportedMediaType", message)


def too_large(limit: int) -> StatusError:
    message = f"Request entity too large: limit is {limit}"
    return StatusError(413, "RequestEntityTooLarge", message)


def too_many_requests(message: str, retry_after: int, *, causes: Sequence[ErrorCause] = ()) -> StatusError:
    details: dict[str, Any] = {}
    if causes:
        details["causes"] = [_cause(cause) for cause in causes]
    if retry_after:
        details["retryAfterSeconds"] = retry_after
    headers = {"retry-after": str(retry_after)} if retry_after else {}
    return StatusError(429, "TooManyRequests", message, details=details, headers=headers)


def internal(message: str) -> StatusError:
    return StatusError(
        500,
        "InternalError",
        f"Internal error occurred: {message}",
        details={"causes": [{"message": message}]},
    )


def gateway_timeout(message: str, *, retry_after: int = 0, causes: Sequence[ErrorCause] = ()) -> StatusError:
    details: dict[str, Any] = {}
    if causes:
        details["causes"] = [_cause(cause) for cause in causes]
    if retry_after:
        details["retryAfterSeconds"] = retry_after
    headers = {"retry-after": str(retry_after)} if retry_after else {}
    return StatusError(504, "Timeout", f"Timeout: {message}", details=details, headers=headers)
