"""Signed events over HTTP, in the form of Standard Webhooks.

A receiver computes HMAC-SHA256 over `ID.TIMESTAMP.BODY`, rejects an old timestamp, and remembers ids: an event
that is repeated by us, or replayed by others, has the same id. While a secret is replaced, there is a signature for
the new one and one for the old one.
"""

import base64
import hmac
from collections.abc import Sequence

import msgspec

from kapsa.adapters.errors import ExternalError
from kapsa.adapters.http.client import HttpClient
from kapsa.fleet.infrastructure.delivery.failures import DeliveryError, PermanentDeliveryError
from kapsa.fleet.infrastructure.delivery.outbox import ClaimedMessage, endpoint_id

__all__ = ["WebhookSender", "webhook_key", "webhook_signature"]

_GONE = 410
_ENCODED = "whsec_"
_REMEDIES = {
    "AddressRefused": ", its address, or that of the proxy, is not public. "
    "Set KAPSA_FLEET_WEBHOOK_PRIVATE_ADDRESSES=true if it is in your private network"
}


def webhook_key(secret: str) -> bytes:
    """Return the key of a secret: its bytes, or the base64 after `whsec_`, as Standard Webhooks writes it."""
    if secret.startswith(_ENCODED):
        return base64.b64decode(secret.removeprefix(_ENCODED), validate=True)
    return secret.encode()


def webhook_signature(secret: bytes, event_id: str, timestamp: int, body: bytes) -> str:
    """Return the signature of an event, as its header has it."""
    signed = b".".join((event_id.encode(), str(timestamp).encode(), body))
    return "v1," + base64.b64encode(hmac.digest(secret, signed, "sha256")).decode()


class WebhookSender:
    """A sender of events to the configured addresses, signed with each of the secrets."""

    def __init__(self, client: HttpClient, urls: Sequence[str], *secrets: str) -> None:
        self._client = client
        self._urls = {endpoint_id(url): url for url in urls}
        self._keys = tuple(map(webhook_key, secrets))

    async def send(self, message: ClaimedMessage) -> None:
        """Send an event. Any response but a success is a failure; redirects are not followed.

        The body is the same at each attempt, and says when it happened. The time of the attempt is signed.
        """
        event_id, payload = str(message.id), message.payload
        url = self._urls.get(payload["endpoint"])
        if url is None:
            # Another replica may have it already, or still: it is given up only after a day.
            raise DeliveryError("the webhook is not configured any more")
        event = {
            "id": event_id,
            "type": payload["type"],
            "timestamp": int(message.created_at.timestamp()),
            "data": payload["data"],
        }
        body, attempt = msgspec.json.encode(event), int(message.claimed_at.timestamp())
        headers = {
            "Content-Type": "application/json",
            "webhook-id": event_id,
            "webhook-timestamp": str(attempt),
            "webhook-signature": " ".join(
                webhook_signature(key, event_id, attempt, body) for key in self._keys
            ),
        }
        try:
            # The status says it all: a receiver that is talkative, or slow to end, has received the event.
            response = await self._client.fetch("POST", url, headers=headers, body=body, limit=0)
        except ExternalError as error:
            # The message of the error has the URL, which may have a secret in its path.
            remedy = _REMEDIES.get(error.reason, "")
            raise DeliveryError(f"the webhook could not be called: {error.reason}{remedy}") from None
        if response.status == _GONE:
            raise PermanentDeliveryError("the webhook answered 410: it is gone")
        if not 200 <= response.status < 300:
            raise DeliveryError(f"the webhook answered {response.status}")
