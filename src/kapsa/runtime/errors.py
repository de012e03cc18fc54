"""The errors that a client of a cluster raises, one type for each cause.

The tree; a call that failed with a `retryable` error can succeed later although the caller changed nothing:

    ClientError
    ├── ConfigError              a kubeconfig or an environment that cannot be used
    ├── CredentialError          credentials could not be obtained (exec plugin, OIDC, token file)
    ├── UnknownKind              the cluster does not serve this kind (yet)            retryable
    ├── DecodeError              an object does not fit the type it is read into
    ├── WriteRefused             this process may not write at the moment
    ├── TransportError           no response: refused, reset, broken off               retryable
    │   ├── CertificateError     TLS verification failed
    │   ├── ForbiddenAddress     the server's name resolves to a forbidden address
    │   ├── ResponseTooLarge     the response is larger than this client accepts
    │   └── NoResponse           no response in time                                   retryable
    └── ApiError                 the server returned an error Status
        ├── BadRequest           400
        ├── Unauthorized         401
        ├── Forbidden            403
        ├── NotFound             404
        ├── MethodNotAllowed     405
        ├── AlreadyExists        409, reason AlreadyExists
        ├── Conflict             409, any other reason
        ├── Expired              410
        ├── TooLarge             413
        ├── UnsupportedMediaType 415
        ├── Invalid              422, with the invalid fields in `causes`
        ├── TooManyRequests      429                                                   retryable
        ├── InternalError        500                                                   retryable
        ├── Unavailable          503                                                   retryable
        └── Timeout              504, and reasons Timeout and ServerTimeout            retryable

A `Conflict` is not `retryable`: the same request fails until the caller reads the object again.
"""
# ruff: noqa: N818 - the names are those of Kubernetes

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

__all__ = [
    "AlreadyExists",
    "ApiError",
    "ApiStatus",
    "BadRequest",
    "CertificateError",
    "ClientError",
    "ConfigError",
    "Conflict",
    "CredentialError",
    "DecodeError",
    "Expired",
    "Forbidden",
    "ForbiddenAddress",
    "InternalError",
    "Invalid",
    "MethodNotAllowed",
    "NoResponse",
    "NotFound",
    "ResponseTooLarge",
    "StatusCause",
    "Timeout",
    "TooLarge",
    "TooManyRequests",
    "TransportError",
    "Unauthorized",
    "Unavailable",
    "UnknownKind",
    "UnsupportedMediaType",
    "WriteRefused",
    "error_from_response",
    "error_from_status",
]


class ClientError(Exception):
    """The base of all errors that the client raises."""

    retryable: ClassVar[bool] = False
    """True if the same call can succeed later although the caller changed nothing."""

    retry_after: float | None = None
    """Seconds to wait before the next attempt, if the server set them."""


class ConfigError(ClientError):
    """A kubeconfig or an environment cannot be used. The message names file, context and field."""


class CredentialError(ClientError):
    """Credentials could not be obtained."""


class UnknownKind(ClientError):
    """The cluster does not serve this kind. The call succeeds once its CRD is installed."""

    retryable = True


class DecodeError(ClientError):
    """An object from the cluster does not fit the type that it is read into."""


class WriteRefused(ClientError):
    """This process may not write at the moment, for instance because it is not the leader."""


class TransportError(ClientError):
    """No response arrived: the connection was refused, reset or broken off."""

    retryable = True

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent
        """False if the server cannot have received the request."""


class CertificateError(TransportError):
    """TLS verification failed: the server's certificate, its name, or the client certificate."""

    retryable = False


class ForbiddenAddress(TransportError):
    """The server of an untrusted kubeconfig resolves to an address that is not allowed."""

    retryable = False


class ResponseTooLarge(TransportError):
    """The response is larger than this client accepts."""

    retryable = False


class NoResponse(TransportError):
    """The server did not respond in time."""


class StatusCause(msgspec.Struct, frozen=True):
    """One invalid field of an `Invalid`, or one conflicting field of a `Conflict` in server-side apply."""

    reason: str = ""
    message: str = ""
    field: str = ""


class _Details(msgspec.Struct, frozen=True):
    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[StatusCause, ...] = ()
    retry_after_seconds: float = msgspec.field(name="retryAfterSeconds", default=0)


class ApiStatus(msgspec.Struct, frozen=True):
    """The `meta/v1` Status that the server returns for a failed request."""

    status: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: _Details | None = None


class ApiError(ClientError):
    """The server returned an error."""

    def __init__(self, status: ApiStatus, *, action: str = "", retry_after: float | None = None) -> None:
        self.status = status
        self.action = action
        """The request that failed: `PATCH /api/v1/namespaces/default/services/web`."""
        details = status.details or _Details()
        self.retry_after = retry_after if retry_after is not None else (details.retry_after_seconds or None)
        super().__init__(status, action)

    @property
    def code(self) -> int:
        """The HTTP status code."""
        return self.status.code

    @property
    def reason(self) -> str:
        """The machine-readable reason, such as `AlreadyExists`."""
        return self.status.reason

    @property
    def message(self) -> str:
        """The message of the server."""
        return self.status.message

    @property
    def causes(self) -> tuple[StatusCause, ...]:
        """The invalid fields, or the fields that other managers own."""
        return self.status.details.causes if self.status.details else ()

    def __str__(self) -> str:
        action = f"{self.action}: " if self.action else ""
        return f"{action}{self.message or 'no message'} ({self.code} {self.reason or 'Unknown'})"


class BadRequest(ApiError):
    """The request is malformed."""


class Unauthorized(ApiError):
    """The server does not accept the credentials."""

    def __str__(self) -> str:
        return f"{super().__str__()}: the server rejected the credentials; renew them"


class Forbidden(ApiError):
    """The credentials are valid, but do not allow the request."""


class NotFound(ApiError):
    """The object does not exist, or the server does not serve its resource: see `resource_missing`."""

    @property
    def resource_missing(self) -> bool:
        """True if the server does not serve the resource at all, as for a CRD that is not installed."""
        return not (self.status.details and self.status.details.name)


class MethodNotAllowed(ApiError):
    """The resource does not support this verb."""


class AlreadyExists(ApiError):
    """An object with this name exists already."""


class Conflict(ApiError):
    """The object changed since it was read, or another field manager owns a field."""


class Expired(ApiError):
    """The resourceVersion or the continue token is too old: list again."""


class TooLarge(ApiError):
    """The request is larger than the server accepts."""


class UnsupportedMediaType(ApiError):
    """The resource does not support this type of patch."""


class Invalid(ApiError):
    """The object is invalid; `causes` names each field."""


class TooManyRequests(ApiError):
    """The server is overloaded and did not process the request."""

    retryable = True


class InternalError(ApiError):
    """The server failed to process the request."""

    retryable = True


class Unavailable(ApiError):
    """The server, or something it depends on, is unavailable."""

    retryable = True


class Timeout(ApiError):
    """The server timed out. It may or may not have processed the request."""

    retryable = True


_BY_REASON: dict[str, type[ApiError]] = {
    "AlreadyExists": AlreadyExists,
    "BadRequest": BadRequest,
    "Conflict": Conflict,
    "Expired": Expired,
    "Forbidden": Forbidden,
    "Gone": Expired,
    "InternalError": InternalError,
    "Invalid": Invalid,
    "MethodNotAllowed": MethodNotAllowed,
    "NotFound": NotFound,
    "RequestEntityTooLarge": TooLarge,
    "ServerTimeout": Timeout,
    "ServiceUnavailable": Unavailable,
    "Timeout": Timeout,
    "TooManyRequests": TooManyRequests,
    "Unauthorized": Unauthorized,
    "UnsupportedMediaType": UnsupportedMediaType,
}

_BY_CODE: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: MethodNotAllowed,
    409: Conflict,
    410: Expired,
    413: TooLarge,
    415: UnsupportedMediaType,
    422: Invalid,
    429: TooManyRequests,
    500: InternalError,
    502: Unavailable,
    503: Unavailable,
    504: Timeout,
}

_decode_status = msgspec.json.Decoder(ApiStatus).decode
_SHOWN_OF_OTHER_BODIES = 300


def error_from_status(status: ApiStatus, *, action: str = "", retry_after: float | None = None) -> ApiError:
    """Return the typed error for a Status, whether it is a response or an event of a watch."""
    kind = _BY_REASON.get(status.reason) or _BY_CODE.get(status.code, ApiError)
    return kind(status, action=action, retry_after=retry_after)


def error_from_response(code: int, headers: Mapping[str, str], body: bytes, *, action: str = "") -> ApiError:
    """Return the typed error for a failed request, also if a proxy in between wrote the response."""
    try:
        status = _decode_status(body)
    except (msgspec.DecodeError, RecursionError):
        status = ApiStatus()
    if status.status != "Failure" or not status.code:
        text = body[:_SHOWN_OF_OTHER_BODIES].decode("utf-8", "replace").strip()
        status = ApiStatus(status="Failure", message=text or f"HTTP {code}", code=code)
    return error_from_status(status, action=action, retry_after=_retry_after(headers))


def _retry_after(headers: Mapping[str, Any]) -> float | None:
    value = headers.get("retry-after") or headers.get("Retry-After")
    try:
        return max(0.0, float(value)) if value else None
    except ValueError:  # a date, which no API server sends; the default back-off is better than a guess
        return None
