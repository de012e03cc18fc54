"""An audit trail in memory, for tests that look at what was recorded."""

from __future__ import annotations

from kapsa.fleet.orchestrator.ports.audit import AuditEntry
from kapsa.fleet.orchestrator.ports.transactions import Connection

__all__ = ["AuditRecorder"]


class AuditRecorder:
    """Entries in the order in which they were recorded."""

    def __init__(self) -> None:
        self.entries: list[AuditEntry] = []
        self.erased: list[tuple[str, str]] = []

    async def record(self, connection: Connection, entry: AuditEntry) -> None:
        self.entries.append(entry)

    async def erase(self, connection: Connection, object_kind: str, object_id: str) -> int:
        self.erased.append((object_kind, object_id))
        return 1

    def actions(self) -> list[str]:
        return [entry.action for entry in self.entries]
