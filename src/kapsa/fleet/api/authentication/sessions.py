"""Browser sessions: a cookie that scripts cannot read, and a CSRF token that requests with changes must repeat.

The database has a hash of the cookie. The CSRF token is derived from the cookie, so that nothing else is stored.
"""

import hashlib
import hmac
import secrets
from datetime import UTC, datetime, timedelta

from litestar.datastructures import Cookie

from kapsa.fleet.api.authentication.callers import Caller
from kapsa.fleet.domain.principals import Principal
from kapsa.fleet.orchestrator.ports.requests.browser_sessions import BrowserSession, BrowserSessions

__all__ = ["CSRF_HEADER", "SESSION_COOKIE", "SessionKeeper", "expired_cookie", "session_cookie"]

SESSION_COOKIE = "__Host-kapsa-session"
"""The prefix makes browsers insist on Secure, no Domain, and the path `/`."""
CSRF_HEADER = "X-CSRF-Token"
_LONGEST_SESSION = timedelta(hours=8)
_LONGEST_TOKEN = 128


class SessionKeeper:
    """The sessions of browsers, by the value of their cookie."""

    def __init__(self, sessions: BrowserSessions) -> None:
        self._sessions = sessions

    async def start(self, principal: Principal, until: datetime | None = None) -> tuple[str, Caller]:
        """Start a session. Return the value of its cookie, and the caller."""
        token = secrets.token_urlsafe(32)
        end = datetime.now(UTC) + _LONGEST_SESSION
        session = BrowserSession(principal, min(end, until) if until else end)
        await self._sessions.create(_hash(token), session)
        return token, _caller(token, session)

    async def caller(self, token: str) -> Caller | None:
        """Return the caller of a session, or None if the session does not exist or has ended."""
        if not 0 < len(token) <= _LONGEST_TOKEN:
            return None
        session = await self._sessions.get(_hash(token))
        return _caller(token, session) if session is not None else None

    async def end(self, token: str) -> None:
        """End a session."""
        await self._sessions.delete(_hash(token))


def session_cookie(token: str, expires_at: datetime) -> Cookie:
    """Return the cookie of a session."""
    seconds = max(0, int((expires_at - datetime.now(UTC)).total_seconds()))
    return Cookie(
        SESSION_COOKIE, value=token, path="/", max_age=seconds, secure=True, httponly=True, samesite="strict"
    )


def expired_cookie() -> Cookie:
    """Return the cookie that removes the one of a session."""
    return Cookie(
        SESSION_COOKIE, value="", path="/", max_age=0, secure=True, httponly=True, samesite="strict"
    )


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _caller(token: str, session: BrowserSession) -> Caller:
    csrf = hmac.new(token.encode(), b"csrf", hashlib.sha256).hexdigest()
    return Caller(principal=session.principal, expires_at=session.expires_at, csrf_token=csrf)
