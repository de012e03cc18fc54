"""Problem details (RFC 9457): the one shape of every error, and the statuses that each kind of error has."""

import http
from collections.abc import Mapping

import msgspec
import structlog
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException

from kapsa.fleet.api.route_parameters import parameter_fields
from kapsa.fleet.domain.errors import (
    DomainError,
    InvalidField,
    InvalidInput,
    NotAllowed,
    StateConflict,
    UnknownObject,
    VersionMismatch,
)
from kapsa.fleet.orchestrator.ports.clusters import ClusterUnreachable
from kapsa.fleet.orchestrator.ports.transactions import DatabaseUnavailable
from kapsa.fleet.orchestrator.ports.vault import VaultUnavailable

__all__ = [
    "PROBLEM_RESPONSES",
    "PROBLEM_TYPE",
    "NotAuthenticated",
    "NotServed",
    "Problem",
    "RateLimited",
    "RequestRejected",
    "RequestUnprocessable",
    "UnsupportedContent",
    "answer_with_problem",
    "problem_response",
    "status_of",
]

# ruff: noqa: N818 - the names say what happened

log = structlog.get_logger(__name__)

PROBLEM_TYPE = "application/problem+json"

PROBLEM_RESPONSES: Mapping[int, str] = {
    400: "The request is invalid: `errors` has each offending field with its full path.",
    401: "There is no valid token or session.",
    403: "The roles of the caller do not permit this.",
    404: "The object does not exist, or the caller may not see it.",
    409: "The present state of the object does not permit this.",
    412: "The object has another version than `If-Match` names.",
    413: "The body is too large.",
    415: "The body is not `application/json`.",
    422: "The `Idempotency-Key` was used for another request.",
    429: "The caller has sent too many requests: `Retry-After` has the seconds to wait.",
    500: "The manager failed. The log has the cause.",
    503: "The manager cannot serve requests now.",
}
"""Every error status of the API, with its meaning."""


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error, as RFC 9457 describes it."""

    type: str
    """A URI reference that identifies the kind of problem; `about:blank` when the status says it all."""
    title: str
    status: int
    detail: str
    """One or two sentences: the cause, the object, and the remedy."""
    errors: tuple[InvalidField, ...] = ()
    """The offending fields, each with its full path as a JSON pointer."""


class RequestRejected(Exception):
    """A request that the API itself rejects, with a status and headers."""

    status = 400

    def __init__(self, detail: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.headers = dict(headers or {})


class NotAuthenticated(RequestRejected):
    """A request without a valid token or session."""

    status = 401

    def __init__(self, detail: str, *, invalid_token: bool = False) -> None:
        challenge = 'Bearer realm="kapsa-fleet"' + (', error="invalid_token"' if invalid_token else "")
        super().__init__(detail, headers={"WWW-Authenticate": challenge})


class UnsupportedContent(RequestRejected):
    """A body that is not JSON."""

    status = 415


class RequestUnprocessable(RequestRejected):
    """An idempotency key that belongs to another request."""

    status = 422


class NotServed(RequestRejected):
    """A request that this manager is not set up for."""

    status = 503


class RateLimited(RequestRejected):
    """A request over the rate limit."""

    status = 429

    def __init__(self, detail: str, retry_after: int) -> None:
        super().__init__(detail, headers={"Retry-After": str(retry_after)})


_DOMAIN_STATUS: Mapping[type[DomainError], int] = {
    InvalidInput: 400,
    NotAllowed: 403,
    UnknownObject: 404,
    VersionMismatch: 412,
    StateConflict: 409,
}


def answer_with_problem(request: Request, error: Exception) -> Response[bytes]:  # type: ignore[type-arg]
    """Return the response to any error: the one exception handler of the application."""
    match error:
        case RequestRejected():
            return problem_response(error.status, str(error), headers=error.headers)
        case DomainError():
            fields = error.fields if isinstance(error, InvalidInput) else ()
            return problem_response(_domain_status(error), str(error), fields)
        case ClusterUnreachable():
            return problem_response(409, f"a cluster cannot be used now: {error}")
        case VaultUnavailable():
            log.warning("a request needs the vault", route=_route(request), error=str(error))
            return problem_response(503, "The keys of the vault cannot be used now. The log has the cause.")
        case DatabaseUnavailable():
            log.warning("a request needs the database", route=_route(request), error=str(error))
            return problem_response(503, "The database cannot be used now. The log has the cause.")
        case ValidationException():
            return _invalid_parameters(request, error)
        case HTTPException():
            return _http_problem(request, error)
    log.error("a request failed", method=request.method, route=_route(request), exc_info=error)
    return problem_response(500, "The manager failed to handle the request. Its log has the cause.")


def status_of(error: Exception) -> int:
    """Return the status of the response to an error."""
    match error:
        case RequestRejected():
            return error.status
        case DomainError():
            return _domain_status(error)
        case ClusterUnreachable():
            return 409
        case VaultUnavailable() | DatabaseUnavailable():
            return 503
        case HTTPException():
            return error.status_code
    return 500


def problem_response(
    status: int,
    detail: str,
    errors: tuple[InvalidField, ...] = (),
    *,
    headers: Mapping[str, str] | None = None,
) -> Response[bytes]:
    """Return a problem document."""
    problem = Problem("about:blank", http.HTTPStatus(status).phrase, status, detail, errors)
    return Response(
        msgspec.json.encode(problem), status_code=status, media_type=PROBLEM_TYPE, headers=dict(headers or {})
    )


def _domain_status(error: DomainError) -> int:
    return next(status for kind, status in _DOMAIN_STATUS.items() if isinstance(error, kind))


def _invalid_parameters(request: Request, error: ValidationException) -> Response[bytes]:  # type: ignore[type-arg]
    """Return the problem with the parameters that litestar could not convert."""
    extra = error.extra if isinstance(error.extra, list) else []
    names = {field.name: name for name, _, field in parameter_fields(request.route_handler)}
    fields = tuple(_invalid_parameter(each, names) for each in extra)
    detail = "; ".join(f"{field.path[1:]}: {field.message}".removeprefix(": ") for field in fields)
    return problem_response(400, detail or "a parameter is invalid", fields)


def _invalid_parameter(entry: Mapping[str, str], names: Mapping[str, str]) -> InvalidField:
    key = entry.get("key", "")
    if key == "data":  # a request without a body does not get as far as its decoder
        return InvalidField("", "the body is missing: send a JSON object")
    return InvalidField(f"/{names.get(key, key)}", _sentence(entry))


def _sentence(entry: Mapping[str, str]) -> str:
    return str(entry.get("message", "is invalid"))[:300]


def _http_problem(request: Request, error: HTTPException) -> Response[bytes]:  # type: ignore[type-arg]
    status = error.status_code
    headers = {key: value for key, value in (error.headers or {}).items() if key.lower() == "allow"}
    if status == 404:
        return problem_response(404, "There is nothing at this path. /openapi.json has all paths.")
    if status == 405:
        return problem_response(405, f"{request.method} is not a method of this path.", headers=headers)
    if status == 413:
        return problem_response(413, "The body is larger than this path accepts.")
    if status >= 500:
        log.error("a request failed", method=request.method, route=_route(request), exc_info=error)
        return problem_response(500, "The manager failed to handle the request. Its log has the cause.")
    return problem_response(status, str(error.detail)[:300])


def _route(request: Request) -> str:  # type: ignore[type-arg]
    return str(request.scope.get("path_template", ""))
