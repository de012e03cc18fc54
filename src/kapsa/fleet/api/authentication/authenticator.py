"""The caller of a request: by its bearer token, or by the cookie of a browser session."""

import hmac
from datetime import UTC, datetime
from typing import Any, TypeAlias

from litestar.connection import ASGIConnection

from kapsa.fleet.api.authentication.callers import Caller
from kapsa.fleet.api.authentication.sessions import CSRF_HEADER, SESSION_COOKIE, SessionKeeper
from kapsa.fleet.api.authentication.tokens import InvalidToken, TokenVerifier
from kapsa.fleet.api.problems import NotAuthenticated
from kapsa.fleet.domain.errors import NotAllowed

__all__ = ["CallerAuthenticator"]

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})

Connection: TypeAlias = ASGIConnection[Any, Any, Any, Any]


class CallerAuthenticator:
    """The authentication of requests."""

    def __init__(self, tokens: TokenVerifier, sessions: SessionKeeper) -> None:
        self.tokens = tokens
        self.sessions = sessions

    async def authenticate(self, connection: Connection) -> Caller:
        """Return the caller. A token wins over a cookie, and needs no CSRF token: browsers do not send it by themselves.

        Raises NotAuthenticated if there is no valid token or session, and NotAllowed without the CSRF token.
        """
        headers = connection.headers.getall("authorization", [])
        if headers:
            return await self._by_token(headers)
        cookie = connection.cookies.get(SESSION_COOKIE, "")
        if not cookie:
            raise NotAuthenticated("a token is required: send `Authorization: Bearer TOKEN`")
        caller = await self.sessions.caller(cookie)
        if caller is None:
            raise NotAuthenticated("the session has ended: sign in again")
        if connection.scope.get("method") not in _SAFE:
            _check_csrf(connection, caller)
        return caller

    async def still_valid(self, connection: Connection) -> bool:
        """Return whether the caller of a long request is still authenticated: streams end when it is not."""
        try:
            caller = await self.authenticate(connection)
        except NotAuthenticated:
            return False
        return caller.expires_at > datetime.now(UTC)

    async def _by_token(self, headers: list[str]) -> Caller:
        scheme, _, token = headers[0].partition(" ")
        if len(headers) > 1 or scheme.lower() != "bearer" or not token.strip():
            raise NotAuthenticated("the Authorization header is not `Bearer TOKEN`", invalid_token=True)
        try:
            return await self.tokens.caller(token.strip())
        except InvalidToken as error:
            raise NotAuthenticated(str(error), invalid_token=True) from None


def _check_csrf(connection: Connection, caller: Caller) -> None:
    sent = connection.headers.get(CSRF_HEADER, "")
    if not hmac.compare_digest(sent.encode(), caller.csrf_token.encode()):
        raise NotAllowed(f"a change by a browser session needs the header {CSRF_HEADER}")
