"""The handler of AdmissionReview and ConversionReview calls, over TLS or within this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import structlog

from kapsa.runtime.cancellation import await_user_code
from kapsa.runtime.client.client import Client
from kapsa.runtime.resources.mismatch import ModelMismatch
from kapsa.runtime.webhooks.admission import Review, Webhook, deny, review_response
from kapsa.runtime.webhooks.conversion import ConversionReview, Conversions

__all__ = ["CONVERT", "Observe", "ReviewHandler", "ReviewOutcome"]

_log = structlog.get_logger(__name__)

ReviewOutcome = str
"""allowed, denied, converted, misfit, error, timeout, malformed or late (the request did not arrive in time).
"""

Observe = Callable[[str, ReviewOutcome, float], None]
"""Called after each review with the name of the webhook, the outcome and the duration in seconds."""

CONVERT = "/convert"
"""The path of the conversion webhook."""

_CONVERSION = "convert"
_AHEAD = 0.5
"""Seconds by which a webhook times out before the API server does, whose timer started earlier."""
_decode_review = msgspec.json.Decoder(Review).decode
_decode_conversion = msgspec.json.Decoder(ConversionReview).decode
_encode = msgspec.json.Encoder().encode


class ReviewHandler:
    """A handler that answers each review. A webhook that fails denies the write and names the failure."""

    def __init__(
        self,
        webhooks: Sequence[Webhook[Any]],
        conversions: Conversions,
        client: Client,
        *,
        max_body_bytes: int,
        observe: Observe | None = None,
    ) -> None:
        """Prepare a handler. Webhooks read through `client`, and its clock measures the durations."""
        self._webhooks = {webhook.path: webhook for webhook in webhooks}
        self._conversions = conversions
        self._client = client
        self._max_body_bytes = max_body_bytes
        self._observe = observe or (lambda name, outcome, seconds: None)

    async def __call__(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Handle a POST of `body` to `path`. Return the HTTP status and the body of the response."""
        path, _, _ = path.partition("?")
        webhook = self._webhooks.get(path)
        name = self._name(path)
        if not name:
            return 404, f"no webhook at {path}".encode()
        started = self._client.clock.monotonic()
        if len(body) > self._max_body_bytes:
            outcome, code, reply = (
                "malformed",
                413,
                f"request body exceeds {self._max_body_bytes} bytes".encode(),
            )
        elif webhook is not None:
            outcome, code, reply = await self._admit(webhook, body)
        else:
            outcome, code, reply = await self._convert(body)
        self._observe(name, outcome, self._client.clock.monotonic() - started)
        return code, reply

    def late(self, path: str, seconds: float) -> tuple[int, bytes]:
        """Return the response to a POST to `path` whose body did not arrive within `seconds`."""
        if name := self._name(path):
            self._observe(name, "late", seconds)
        return 408, f"request body did not arrive within {seconds:g} s".encode()

    def _name(self, path: str) -> str:
        """Return the name of the webhook at a path, as in the metrics; empty if there is none."""
        if path in self._webhooks:
            return self._webhooks[path].name
        return _CONVERSION if path == CONVERT and self._conversions.crds else ""

    async def _admit(self, webhook: Webhook[Any], body: bytes) -> tuple[ReviewOutcome, int, bytes]:
        uid = ""
        limit = webhook.timeout_seconds - _AHEAD
        try:
            async with asyncio.timeout(limit):
                review = _decode_review(body)
                uid = review.request.uid
                response, reply = await await_user_code(webhook.review(review, self._client))
        except msgspec.DecodeError as error:
            return "malformed", 400, f"not an AdmissionReview: {error}".encode()
        except TimeoutError:
            message = f"{webhook.name} did not respond within {limit:g} s; try again"
            return (
                "timeout",
                200,
                _encode(review_response(uid, deny(message, code=504, reason="Timeout"), [])),
            )
        except ModelMismatch as error:
            return (
                "misfit",
                200,
                _encode(review_response(uid, deny(str(error), code=422, reason="Invalid"), [])),
            )
        except Exception as error:
            _log.exception("webhook failed, write denied", webhook=webhook.name, uid=uid)
            message = (
                f"{webhook.name} failed, so the write is denied: {type(error).__name__}: {error}. "
                "See the log of the operator."
            )
            return (
                "error",
                200,
                _encode(review_response(uid, deny(message, code=500, reason="InternalError"), [])),
            )
        return "allowed" if response.allowed else "denied", 200, _encode(reply)

    async def _convert(self, body: bytes) -> tuple[ReviewOutcome, int, bytes]:
        """Convert within a time limit, which is checked between two objects: a converter is a plain function."""
        try:
            review = _decode_conversion(body)
        except msgspec.DecodeError as error:
            return "malformed", 400, f"not a ConversionReview: {error}".encode()
        reply = await self._conversions.review(review)
        result = reply["response"]["result"]
        if result["status"] == "Success":
            return "converted", 200, _encode(reply)
        _log.error("conversion failed", error=result["message"])
        return "error", 200, _encode(reply)
