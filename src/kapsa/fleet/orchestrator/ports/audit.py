"""The audit trail: every write leaves an entry in its own transaction."""

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from kapsa.fleet.orchestrator.ports.transactions import Connection

__all__ = ["AuditEntry", "AuditTrail"]


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One act: who did what to which object. No secret may be in it."""

    actor: str
    """The subject of the principal, or `system:…` for the manager itself."""
    action: str
    """A dotted verb: `cluster.register`, `deployment.abort`."""
    object_kind: str
    object_id: str
    """An id that identifies no person and no cluster by itself: it outlives erasure."""
    payload: Mapping[str, Any] = {}
    """Details as JSON. Erased by retention, and when the object is deleted."""


class AuditTrail(Protocol):
    """A recorder of entries, and their eraser."""

    async def record(self, connection: Connection, entry: AuditEntry) -> None:
        """Record an entry in the caller's transaction: it exists if, and only if, the write does."""
        ...

    async def erase(self, connection: Connection, object_kind: str, object_id: str) -> int:
        """Erase actors and payloads of the entries of an object. Return the number of entries.

        The entries stay in the chain, which remains whole.
        """
        ...
