"""Mail over SMTP."""

import ssl
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from pathlib import Path
from typing import Any, Literal

import aiosmtplib
import msgspec

from kapsa.fleet.infrastructure.delivery.failures import DeliveryError, PermanentDeliveryError
from kapsa.fleet.infrastructure.delivery.outbox import ClaimedMessage

__all__ = ["SmtpMailer", "SmtpServer"]


class SmtpServer(msgspec.Struct, frozen=True):
    """The mail server and how to use it."""

    host: str
    port: int
    security: Literal["starttls", "tls", "none"]
    sender: str
    username: str = ""
    password: str = ""
    ca_file: Path | None = None

    def __repr__(self) -> str:
        return f"SmtpServer({self.host}:{self.port}, {self.security})"


class SmtpMailer:
    """A mailer with a connection for each email: emails are rare, and servers close idle connections."""

    def __init__(self, server: SmtpServer, *, timeout: float = 10.0) -> None:
        self._server = server
        self._timeout = timeout
        self._tls = None if server.security == "none" else ssl.create_default_context(cafile=server.ca_file)

    async def send(self, message: ClaimedMessage) -> None:
        """Send an email. A repetition has the same Message-ID, by which mail programs drop it."""
        server = self._server
        try:
            await aiosmtplib.send(
                _compose(message.id, message.payload, server.sender),
                hostname=server.host,
                port=server.port,
                username=server.username or None,
                password=server.password or None,
                use_tls=server.security == "tls",
                start_tls=server.security == "starttls",
                timeout=self._timeout,
                tls_context=self._tls,
            )
        except aiosmtplib.SMTPRecipientsRefused as error:
            refused = error.recipients[0]
            if refused.code >= 500:
                raise PermanentDeliveryError(
                    f"{server.host} refused the recipient with {refused.code}"
                ) from None
            raise DeliveryError(f"{server.host} deferred the recipient with {refused.code}") from None
        except (aiosmtplib.SMTPException, OSError) as error:
            raise DeliveryError(f"{server.host}: {type(error).__name__}: {error}") from None


def _compose(message_id: uuid.UUID, payload: Mapping[str, Any], sender: str) -> EmailMessage:
    message = EmailMessage(policy=SMTP)
    try:
        message["From"] = sender
        message["To"] = payload["to"]
        message["Subject"] = payload["subject"]
        message["Message-ID"] = f"<{message_id}@{sender.rpartition('@')[2]}>"
        message["Date"] = format_datetime(datetime.now(UTC))
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(payload["text"])
    except (KeyError, ValueError) as error:
        raise PermanentDeliveryError(f"the mail is malformed: {error}") from None
    return message
