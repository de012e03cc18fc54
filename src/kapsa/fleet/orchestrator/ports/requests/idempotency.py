"""Idempotency keys: a request that is sent twice has one effect and one response."""

import enum
import uuid
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Protocol

import msgspec

__all__ = ["ClaimState", "IdempotencyKeys", "KeyClaim", "RecordedResponse", "current_claim"]


class ClaimState(enum.StrEnum):
    """The state of a key."""

    FRESH = "fresh"
    """The caller has the key: handle the request, then `finish` or `release`."""
    REPLAY = "replay"
    """The request was handled: send the recorded response."""
    IN_PROGRESS = "in progress"
    """Another request with the key is being handled: answer 409 with `retry_after`."""
    MISMATCH = "mismatch"
    """The key was used for another request: answer 422."""
    LOST = "lost"
    """The request took effect, but its response was lost in a crash: answer 409, do not repeat it."""


class RecordedResponse(msgspec.Struct, frozen=True):
    """A response as it was sent."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class KeyClaim(msgspec.Struct, frozen=True):
    """The answer to a claim."""

    state: ClaimState
    subject: str
    key: str
    token: uuid.UUID | None = None
    """Identifies this claim if it is fresh. A later claim of the same key has another."""
    response: RecordedResponse | None = None
    retry_after: int = 0
    """Seconds, if the request is in progress."""


current_claim: ContextVar[KeyClaim | None] = ContextVar("current_claim", default=None)
"""The claim of the request that is being handled. `AuditTrail.record` marks it in the transaction of the write."""


class IdempotencyKeys(Protocol):
    """The keys of all callers, shared by all replicas."""

    async def claim(self, subject: str, key: str, fingerprint: bytes) -> KeyClaim:
        """Claim a key of a caller. The fingerprint is a hash of method, path and body."""
        ...

    async def finish(self, claim: KeyClaim, response: RecordedResponse) -> None:
        """Record the response, for repetitions within a day."""
        ...

    async def release(self, claim: KeyClaim) -> None:
        """Give the key back after a request that had no effect, so that it can be sent again at once."""
        ...
