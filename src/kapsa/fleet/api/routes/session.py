"""Routes of browser sessions: sign in, sign out, and who the caller is."""

from litestar import Controller, Response, delete, get, post
from litestar.params import JSONBody

from kapsa.fleet.api.access import EVERY_ROLE, open_to_all, read, write
from kapsa.fleet.api.authentication.callers import Caller
from kapsa.fleet.api.authentication.sessions import SESSION_COOKIE, expired_cookie, session_cookie
from kapsa.fleet.api.authentication.tokens import InvalidToken
from kapsa.fleet.api.problems import NotAuthenticated
from kapsa.fleet.api.requests import ApiRequest
from kapsa.fleet.api.views import SessionView, SignInWithToken
from kapsa.fleet.domain.errors import StateConflict

__all__ = ["SessionController"]


class SessionController(Controller):
    """Routes of the caller's own session."""

    path = "/api/v1/session"

    @get("/", opt=read(EVERY_ROLE), operation_id="getSession")
    async def show(self, request: ApiRequest) -> SessionView:
        """Get the caller: subject, roles, and the CSRF token of a browser session."""
        return _view(request.caller)

    @post("/", opt={**open_to_all(), "statuses": (401,)}, operation_id="signInWithToken")
    async def sign_in(self, request: ApiRequest, data: JSONBody[SignInWithToken]) -> Response[SessionView]:
        """Start a browser session with a token of `kapsa fleet token`, for development.

        Refused when an issuer is configured: sign in at /auth/login then.
        """
        if not request.app.state.accepts_pasted_tokens:
            raise StateConflict("tokens are not accepted here: sign in at /auth/login")
        authenticator = request.app.state.authenticator
        try:
            caller = await authenticator.tokens.caller(data.token)
        except InvalidToken as error:
            raise NotAuthenticated(str(error), invalid_token=True) from None
        token, session = await authenticator.sessions.start(caller.principal, caller.expires_at)
        return Response(_view(session), cookies=[session_cookie(token, session.expires_at)])

    @delete("/", opt=write(EVERY_ROLE), operation_id="signOut")
    async def sign_out(self, request: ApiRequest) -> Response[None]:
        """End the browser session. A token stays valid until it expires."""
        if cookie := request.cookies.get(SESSION_COOKIE):
            await request.app.state.authenticator.sessions.end(cookie)
        return Response(None, cookies=[expired_cookie()])


def _view(caller: Caller) -> SessionView:
    principal = caller.principal
    return SessionView(
        subject=principal.subject,
        roles=tuple(sorted(principal.roles)),
        environments=tuple(sorted(principal.owned)),
        email=principal.email,
        expires_at=caller.expires_at,
        csrf_token=caller.csrf_token,
    )
