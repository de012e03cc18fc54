"""The dispatcher: sends the messages of the outbox that are due.

Each destination has a lane of its own, and the lanes run independently: a mail server or a webhook that is down, or
answers slowly, does not hold up the others.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

import structlog

from kapsa.fleet.infrastructure.delivery.failures import DeliveryError, PermanentDeliveryError
from kapsa.fleet.infrastructure.delivery.outbox import ClaimedMessage, OutboxLane, OutboxQueue

__all__ = ["AT_ONCE", "MessageSender", "OutboxDispatcher"]

log = structlog.get_logger(__name__)

AT_ONCE = 10
"""The most messages that a lane sends at the same time."""
_TIMEOUT = 15.0
"""Less than the time of a claim, so that no other replica sends the message meanwhile."""


class MessageSender(Protocol):
    """A way to send one kind of message."""

    async def send(self, message: ClaimedMessage) -> None:
        """Send a message. Raises DeliveryError."""
        ...


class OutboxDispatcher:
    """A dispatcher of messages, which sends several at a time in each lane."""

    def __init__(
        self, queue: OutboxQueue, senders: Mapping[str, MessageSender], endpoints: Sequence[str] = ()
    ) -> None:
        self._queue = queue
        self._senders = senders
        names = (*(kind for kind in senders if kind != "webhook"), *(f"webhook:{each}" for each in endpoints))
        self.lanes = (*map(OutboxLane, names), OutboxLane(others=names))
        """A lane for each destination, and the last for messages whose destination is not configured any more."""

    async def deliver_due(self) -> int:
        """Send all messages that are due. Return the number of attempts."""
        return sum(await asyncio.gather(*map(self.deliver_lane, self.lanes)))

    async def deliver_lane(self, lane: OutboxLane) -> int:
        """Send the messages of one lane that are due. Return the number of attempts."""
        attempts = 0
        while messages := await self._queue.claim(AT_ONCE, lane):
            await asyncio.gather(*(self._deliver(message) for message in messages))
            attempts += len(messages)
        return attempts

    async def _deliver(self, message: ClaimedMessage) -> None:
        fields = {"message": str(message.id), "kind": message.kind, "attempt": message.attempt}
        try:
            await self._send(message)
        except PermanentDeliveryError as error:
            log.warning("message abandoned", error=str(error), **fields)
            await self._queue.abandoned(message, str(error))
        except DeliveryError as error:
            if await self._queue.failed(message, str(error)):
                log.error("message abandoned: it could not be sent for a day", error=str(error), **fields)  # noqa: TRY400
            else:
                log.warning("message not delivered, will be sent again", error=str(error), **fields)
        else:
            await self._queue.delivered(message)
            log.info("message delivered", **fields)

    async def _send(self, message: ClaimedMessage) -> None:
        sender = self._senders.get(message.kind)
        if sender is None:
            raise DeliveryError(f"no {message.kind} server is configured")
        try:
            async with asyncio.timeout(_TIMEOUT):
                await sender.send(message)
        except TimeoutError:
            raise DeliveryError(f"not sent within {_TIMEOUT:g} seconds") from None
        except DeliveryError:
            raise
        except Exception as error:
            # An unknown failure of one message must not stop the others.
            log.exception("message caused an unexpected error", message=str(message.id))
            raise DeliveryError(type(error).__name__) from error
