"""The outbox: messages that are sent if, and only if, the transaction that wrote them commits."""

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from kapsa.fleet.orchestrator.ports.transactions import Connection

__all__ = ["MailMessage", "Outbox", "WebhookEvent"]


class MailMessage(msgspec.Struct, frozen=True):
    """An email to people. Plain text, without secrets."""

    to: tuple[str, ...]
    subject: str
    text: str


class WebhookEvent(msgspec.Struct, frozen=True):
    """An event for the configured webhooks. Signed when it is sent."""

    type: str
    """A dotted name: `approval.requested`."""
    data: Mapping[str, Any]


class Outbox(Protocol):
    """Messages to deliver, at least once each."""

    async def put(self, connection: Connection, message: MailMessage | WebhookEvent) -> None:
        """Add a message in the caller's transaction."""
        ...
