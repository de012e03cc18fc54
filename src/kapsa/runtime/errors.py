"""Everything that can go wrong between an operator and a cluster, as types.

The tree; `retryable` says whether the same call can succeed later with nothing changed by the caller:

    ClientError
    ├── ConfigError              a kubeconfig or an environment that can't be used
    ├── CredentialError          credentials could not be obtained (exec plugin, OIDC, token file)
    ├── UnknownKind              the cluster does not serve this kind (yet)            retryable
    ├── DecodeError              the answer does not fit the model
    ├── WriteRefused             the write gate is closed: this process may not write
    ├── TransportError           no answer: refused, reset, cut                        retryable
    │   ├── CertificateError     TLS trust failed
    │   ├── ForbiddenAddress     the server's name led to where no cluster may be
    │   ├── ResponseTooLarge     the answer is larger than this client accepts
    │   └── NoResponse           no answer in time                                     retryable
    └── ApiError                 the server answered with a Status
        ├── BadRequest           400
        ├── Unauthorized         401
        ├── Forbidden            403
        ├── NotFound             404
        ├── MethodNotAllowed     405
        ├── AlreadyExists        409, reason AlreadyExists
        ├── Conflict             409, everything else
        ├── Expired              410
        ├── TooLarge             413
        ├── UnsupportedMediaType 415
        ├── Invalid              422, with the fields at fault in `causes`
        ├── TooManyRequests      429                                                   retryable
        ├── InternalError        500                                                   retryable
        ├── Unavailable          503                                                   retryable
        └── Timeout              504, and reasons Timeout and ServerTimeout            retryable

A `Conflict` is not `retryable`: the same bytes fail again until the object has been read anew.
"""
# ruff: noqa: N818 - each is named as Kubernetes names it, or as what it is

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
    """The root: anything the client raises."""

    retryable: ClassVar[bool] = False
    """Whether the same call can succeed later although the caller changed nothing."""

    retry_after: float | None = None
    """Seconds the server asked to wait, when it did."""


class ConfigError(ClientError):
    """A kubeconfig, or an environment, that can't be used. The message names file, context and field."""


class CredentialError(ClientError):
    """Credentials could not be obtained."""


class UnknownKind(ClientError):
    """The cluster does not serve this kind. A CRD installed later makes the same call succeed."""

    retryable = True


class DecodeError(ClientError):
    """An object of the cluster does not fit the model it was read into."""


class WriteRefused(ClientError):
    """The write gate is closed: this process may not write (for instance, it no longer leads)."""


class TransportError(ClientError):
    """No answer arrived: the connection was refused, reset or cut."""

    retryable = True

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent
        """False when it is certain that the server never saw the request."""


class CertificateError(TransportError):
    """TLS trust failed: the server's certificate, its name, or ours."""

    retryable = False


class ForbiddenAddress(TransportError):
    """The name of a server that we do not trust led to an address where no cluster may be."""

    retryable = False


class ResponseTooLarge(TransportError):
    """The answer is larger than this client accepts."""

    retryable = False


class NoResponse(TransportError):
    """The server did not answer in time."""


class StatusCause(msgspec.Struct, frozen=True):
    """One field at fault, in an `Invalid`; one manager in the way, in a `Conflict` of server-side apply."""

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
    """The server's `meta/v1` Status: how it says what went wrong."""

    status: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: _Details | None = None


class ApiError(ClientError):
    """The server answered, and the answer is a refusal."""

    def __init__(self, status: ApiStatus, *, action: str = "", retry_after: float | None = None) -> None:
        self.status = status
        self.action = action
        """The request that was refused: `PATCH /api/v1/namespaces/default/services/web`."""
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
        """The server's own words."""
        return self.status.message

    @property
    def causes(self) -> tuple[StatusCause, ...]:
        """The fields at fault, or the field managers in the way."""
        return self.status.details.causes if self.status.details else ()

    def __str__(self) -> str:
        what = f"{self.action}: " if self.action else ""
        return f"{what}{self.message or 'no message'} ({self.code} {self.reason or 'Unknown'})"


class BadRequest(ApiError):
    """The request itself is wrong."""


class Unauthorized(ApiError):
    """The server does not know who is asking."""

    def __str__(self) -> str:
        return f"{super().__str__()}: the server does not accept our credentials; renew them"


class Forbidden(ApiError):
    """The server knows who is asking and does not allow it."""


class NotFound(ApiError):
    """There is no such object, or no such resource: see `resource_missing`."""

    @property
    def resource_missing(self) -> bool:
        """True when the server serves no such resource at all (a CRD that is not installed)."""
        return not (self.status.details and self.status.details.name)


class MethodNotAllowed(ApiError):
    """The resource does not offer this verb."""


class AlreadyExists(ApiError):
    """An object of this name is there already."""


class Conflict(ApiError):
    """The object changed since it was read, or another field manager owns the fields."""


class Expired(ApiError):
    """The resourceVersion, or the continue token, is too old: list again."""


class TooLarge(ApiError):
    """The request is larger than the server accepts."""


class UnsupportedMediaType(ApiError):
    """The server does not take this kind of patch for this resource."""


class Invalid(ApiError):
    """The object breaks the rules of its kind; `causes` names each field."""


class TooManyRequests(ApiError):
    """The server sheds load. It did not act on the request."""

    retryable = True


class InternalError(ApiError):
    """The server failed."""

    retryable = True


class Unavailable(ApiError):
    """The server, or what it needs, is away."""

    retryable = True


class Timeout(ApiError):
    """The server gave up waiting. The request may or may not have been acted on."""

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
_SHOWN_OF_A_FOREIGN_BODY = 300


def error_from_status(status: ApiStatus, *, action: str = "", retry_after: float | None = None) -> ApiError:
    """The typed error for a Status object, whether it came as a response or inside a watch."""
    kind = _BY_REASON.get(status.reason) or _BY_CODE.get(status.code, ApiError)
    return kind(status, action=action, retry_after=retry_after)


def error_from_response(code: int, headers: Mapping[str, str], body: bytes, *, action: str = "") -> ApiError:
    """The typed error for a refused request, whoever wrote the body: the API server or a proxy before it."""
    try:
        status = _decode_status(body)
    except (msgspec.DecodeError, RecursionError):
        status = ApiStatus()
    if status.status != "Failure" or not status.code:
        text = body[:_SHOWN_OF_A_FOREIGN_BODY].decode("utf-8", "replace").strip()
        status = ApiStatus(status="Failure", message=text or f"HTTP {code}", code=code)
    return error_from_status(status, action=action, retry_after=_retry_after(headers))


def _retry_after(headers: Mapping[str, Any]) -> float | None:
    value = headers.get("retry-after") or headers.get("Retry-After")
    try:
        return max(0.0, float(value)) if value else None
    except (
        ValueError
    ):  # the date form: no API server sends it, and a guess is worse than the default back-off
        return None
