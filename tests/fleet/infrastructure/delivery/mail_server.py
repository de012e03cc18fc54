"""A real SMTP server on loopback, which keeps what it receives."""

from __future__ import annotations

import asyncio
import ssl
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult


class MailServer:
    """An aiosmtpd server. `responses` are sent to the next mails instead of accepting them."""

    def __init__(self, *, tls: ssl.SSLContext | None = None, password: bytes | None = None) -> None:
        self.received: list[EmailMessage] = []
        self.responses: list[str] = []
        self.recipient_responses: list[str] = []
        self._password = password
        options: dict[str, Any] = {"tls_context": tls, "require_starttls": True} if tls else {}
        if password is not None:
            options |= {"authenticator": self._authenticate, "auth_required": True}
        self._options = options
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def __aenter__(self) -> MailServer:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: SMTP(self, hostname="mail", loop=loop, **self._options), "127.0.0.1", 0
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    async def wait_for(self, count: int, timeout: float = 120.0) -> list[EmailMessage]:
        async with asyncio.timeout(timeout):
            while len(self.received) < count:  # noqa: ASYNC110 - a test waits for seconds at most
                await asyncio.sleep(0.01)
        return self.received

    async def handle_RCPT(  # noqa: N802 - the name that aiosmtpd calls
        self, server: Any, session: Any, envelope: Any, address: str, options: Any
    ) -> str:
        if self.recipient_responses:
            return self.recipient_responses.pop(0)
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        if self.responses:
            return self.responses.pop(0)
        self.received.append(message_from_bytes(envelope.content, policy=policy.default))  # type: ignore[arg-type]
        return "250 OK"

    def _authenticate(
        self, server: Any, session: Any, envelope: Any, mechanism: str, data: Any
    ) -> AuthResult:
        return AuthResult(success=data.password == self._password, handled=False)
