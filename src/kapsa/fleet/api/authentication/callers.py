"""Callers: a principal, how it was authenticated, and until when."""

from datetime import datetime

import msgspec

from kapsa.fleet.domain.principals import Principal

__all__ = ["Caller"]


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """An authenticated caller of the API."""

    principal: Principal
    expires_at: datetime
    """The end of the token or the session."""
    csrf_token: str = ""
    """Non-empty for a browser session: a request that changes something must repeat it."""
