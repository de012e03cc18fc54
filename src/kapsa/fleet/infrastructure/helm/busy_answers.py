"""Answers of an API server that is busy, or of a proxy in front of it.

They prove nothing about the version that helm applies. Helm tries again for ten seconds, or not at all, and would mark
its revision as failed then. So the gate waits in the place of helm, and hands none of these answers to it.
"""

from collections.abc import Mapping

import msgspec

from kapsa.adapters.redaction import printable, redact
from kapsa.runtime import ApiStatus, Response

__all__ = ["BusyAnswer", "busy_answer"]

_STATUSES = frozenset({429, 502, 503, 504})
_REASONS = frozenset({"TooManyRequests", "ServerTimeout", "Timeout", "ServiceUnavailable"})
_STORE = ("etcdserver: ", "rpc error: code = Unavailable")
"""Beginnings of a message about etcd, which has status 500 and no reason."""
_TOO_LARGE = "etcdserver: request is too large"
"""A message about the object, which no later attempt changes."""
_LONGEST = 300


class BusyAnswer(msgspec.Struct, frozen=True):
    """An answer after which the same request may succeed later."""

    text: str
    processed: bool
    """True if the API server may have carried the request out."""
    retry_after: float = 0.0
    """The seconds that it asks to wait; 0 if it names none."""


def busy_answer(response: Response) -> BusyAnswer | None:
    """Return a response as that of a busy API server, None if it is not one."""
    status = response.status
    if status < 429:
        return None
    body = _status(response.body)
    stored = status == 500 and body.message.startswith(_STORE) and not body.message.startswith(_TOO_LARGE)
    if status not in _STATUSES and body.reason not in _REASONS and not stored:
        return None
    words = " ".join(redact(printable(body.message)).split())[:_LONGEST]
    text = f"the API server answered {status}" + (f": {words}" if words else "")
    # A proxy answers 503, too, and may have forwarded the request. An API server that has not says when to come back.
    unprocessed = status == 429 or (status == 503 and "retry-after" in response.headers)
    return BusyAnswer(text, not unprocessed, _retry_after(response.headers, body))


def _status(body: bytes) -> ApiStatus:
    try:
        return msgspec.json.decode(body, type=ApiStatus)
    except (msgspec.DecodeError, RecursionError):
        return ApiStatus()  # written by a proxy


def _retry_after(headers: Mapping[str, str], body: ApiStatus) -> float:
    try:
        return max(0.0, float(headers["retry-after"]))
    except (KeyError, ValueError):
        return max(0.0, body.details.retry_after_seconds) if body.details else 0.0
