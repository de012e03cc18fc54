"""Access: authentication, roles, known parameters and rate limits, by the rules in the `opt` of the route."""

from collections.abc import Iterable

from litestar.connection import ASGIConnection
from litestar.middleware import ASGIMiddleware
from litestar.types import ASGIApp, Receive, Scope, Send

from kapsa.fleet.api.access import ANY_QUERY, RouteAccess, access_of
from kapsa.fleet.api.authentication.authenticator import CallerAuthenticator
from kapsa.fleet.api.authentication.callers import Caller
from kapsa.fleet.api.problems import RateLimited
from kapsa.fleet.api.route_parameters import query_parameters
from kapsa.fleet.domain.errors import InvalidField, InvalidInput, NotAllowed
from kapsa.fleet.domain.principals import Role
from kapsa.fleet.orchestrator.ports.requests.rate_limits import RateLimit, RateLimits

__all__ = ["AccessMiddleware"]


class AccessMiddleware(ASGIMiddleware):
    """The check of every request against the rules of its route."""

    def __init__(self, authenticator: CallerAuthenticator, limits: RateLimits) -> None:
        self._authenticator = authenticator
        self._limits = limits

    async def handle(self, scope: Scope, receive: Receive, send: Send, next_app: ASGIApp) -> None:
        """Check a request, and pass it on with its caller."""
        rules = access_of(scope["route_handler"].opt)
        if rules is None:
            await _answer_options(scope, send)
            return
        connection: ASGIConnection = ASGIConnection(scope, receive, send)  # type: ignore[type-arg]
        if rules.authenticated:
            await self._admit(connection, rules)
        if not scope["route_handler"].opt.get(ANY_QUERY):
            _check_query(connection)
        await next_app(scope, receive, send)

    async def _admit(self, connection: ASGIConnection, rules: RouteAccess) -> None:  # type: ignore[type-arg]
        caller = await self._authenticator.authenticate(connection)
        connection.scope["user"] = caller
        connection.scope["auth"] = caller
        if rules.roles and not caller.principal.has(*rules.roles):
            raise NotAllowed(f"this needs the role {_names(rules.roles)}")
        if rules.rate_limit is not None:
            await self._count(caller, rules.rate_limit)

    async def _count(self, caller: Caller, limit: RateLimit) -> None:
        wait = await self._limits.hit(caller.principal.subject, limit)
        if wait:
            raise RateLimited(
                f"more than {limit.requests} requests in {limit.period.total_seconds():g} seconds: "
                f"try again in {wait} seconds",
                wait,
            )


async def _answer_options(scope: Scope, send: Send) -> None:
    """Answer OPTIONS with the methods of the path: litestar's own answer has those of one handler only."""
    template = scope["path_template"]
    methods = {
        method
        for route in scope["litestar_app"].routes
        if route.path_format == template
        for method in getattr(route, "methods", ())
    }
    headers = [(b"allow", ", ".join(sorted(methods)).encode())]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _check_query(connection: ASGIConnection) -> None:  # type: ignore[type-arg]
    """Raise InvalidInput for query parameters that the route does not have, has twice, or that cannot be stored."""
    declared = query_parameters(connection.scope["route_handler"])
    seen: set[str] = set()
    for name, value in connection.query_params.multi_items():
        if name not in declared:
            names = ", ".join(sorted(declared)) or "none"
            raise _invalid(name, f"is not a parameter of this path, which has: {names}")
        if name in seen:
            raise _invalid(name, "is given twice")
        if declared[name] and str(value).lower() == "null":
            raise _invalid(name, "must have a value, or be left out")  # msgspec reads it as no value at all
        if "\0" in str(value):
            raise _invalid(name, "contains the character U+0000")
        seen.add(name)


def _invalid(name: str, message: str) -> InvalidInput:
    return InvalidInput(f"{name[:80]!r} {message}", InvalidField(f"/{name[:80]}", message))


def _names(roles: Iterable[Role]) -> str:
    return " or ".join(sorted(roles))
