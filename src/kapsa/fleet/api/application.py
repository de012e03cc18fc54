"""The HTTP application: routes, middleware, the one exception handler, and the OpenAPI document."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from litestar import Litestar
from litestar.datastructures import State
from litestar.types import ControllerRouterHandler
from prometheus_client import CollectorRegistry

from kapsa.fleet.api.authentication.authenticator import CallerAuthenticator
from kapsa.fleet.api.authentication.oidc import OidcFlow
from kapsa.fleet.api.event_stream import OpenStreams, StreamPace
from kapsa.fleet.api.middleware.access import AccessMiddleware
from kapsa.fleet.api.middleware.idempotency import IdempotencyMiddleware
from kapsa.fleet.api.middleware.observation import (
    ApiMetrics,
    ObservationMiddleware,
    add_security_headers,
)
from kapsa.fleet.api.openapi.document import build_document
from kapsa.fleet.api.problems import answer_with_problem
from kapsa.fleet.api.requests import ApiRequest
from kapsa.fleet.api.routes.approvals import ApprovalController
from kapsa.fleet.api.routes.audit import AuditController
from kapsa.fleet.api.routes.clusters import ClusterController
from kapsa.fleet.api.routes.crds import CrdController
from kapsa.fleet.api.routes.deployments import RolloutController
from kapsa.fleet.api.routes.operators import OperatorController
from kapsa.fleet.api.routes.session import SessionController
from kapsa.fleet.api.routes.sign_in import SignInController
from kapsa.fleet.api.routes.system import SystemController
from kapsa.fleet.api.use_cases import UseCases
from kapsa.fleet.orchestrator.ports.requests.idempotency import IdempotencyKeys
from kapsa.fleet.orchestrator.ports.requests.rate_limits import RateLimits

__all__ = ["ApiParts", "create_application"]

_LARGEST_BODY = 1024 * 1024

CONTROLLERS: list[ControllerRouterHandler] = [
    SystemController,
    SessionController,
    SignInController,
    OperatorController,
    ClusterController,
    RolloutController,
    ApprovalController,
    CrdController,
    AuditController,
]


class ApiParts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts that the application is made of."""

    use_cases: UseCases
    authenticator: CallerAuthenticator
    rate_limits: RateLimits
    idempotency_keys: IdempotencyKeys
    check_database: Callable[[], Awaitable[None]]
    """Raises if the database does not answer."""
    registry: CollectorRegistry
    """The metrics of this replica."""
    oidc: OidcFlow | None = None
    carries_out_rollouts: bool
    """False if no engine runs: deployments are not accepted then."""
    stream_pace: StreamPace = StreamPace()
    accepts_pasted_tokens: bool = False
    """True in development: a browser session starts with a token of `kapsa fleet token`."""


def create_application(parts: ApiParts) -> Litestar:
    """Return the application."""
    application = Litestar(
        CONTROLLERS,
        middleware=[
            ObservationMiddleware(ApiMetrics(parts.registry)),
            AccessMiddleware(parts.authenticator, parts.rate_limits),
            IdempotencyMiddleware(parts.idempotency_keys),
        ],
        exception_handlers={Exception: answer_with_problem},
        before_send=[add_security_headers],
        request_class=ApiRequest,
        request_max_body_size=_LARGEST_BODY,
        openapi_config=None,
        logging_config=None,
        state=State(_state(parts)),
    )
    application.state.document = build_document(application.routes)
    return application


def _state(parts: ApiParts) -> dict[str, Any]:
    return {
        "use_cases": parts.use_cases,
        "authenticator": parts.authenticator,
        "check_database": parts.check_database,
        "registry": parts.registry,
        "oidc": parts.oidc,
        "carries_out_rollouts": parts.carries_out_rollouts,
        "stream_pace": parts.stream_pace,
        "open_streams": OpenStreams(),
        "accepts_pasted_tokens": parts.accepts_pasted_tokens,
    }
