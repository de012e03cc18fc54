"""The handler of AdmissionReview and ConversionReview calls, whether they arrive over TLS or within this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import structlog

from kapsa.runtime.cancellation import await_user_code
from kapsa.runtime.client.client import Client
from kapsa.runtime.resources.mismatch import ModelMismatch
from kapsa.runtime.webhooks.admission import Review, Webhook, answer, deny
from kapsa.runtime.webhooks.conversion import ConversionReview, Conversions

__all__ = ["CONVERT", "Observe", "Outcome", "ReviewHandler"]

_log = structlog.get_logger(__name__)

Outcome = str
"""allowed, denied, converted, misfit, error, timeout, malformed or late (the request did not arrive in time)."""

Observe = Callable[[str, Outcome, float], None]
"""Told of every call: the webhook's name, what came of it, and the seconds it took."""

CONVERT = "/convert"
"""Where versions are converted."""

_CONVERSION = "convert"
_AHEAD = 0.5
"""Seconds by which a webhook is given up before the API server gives up: its own timer started before we were called."""
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
        """`client` is what webhooks look around with, and whose clock counts."""
        self._webhooks = {webhook.path: webhook for webhook in webhooks}
        self._conversions = conversions
        self._client = client
        self._max_body_bytes = max_body_bytes
        self._observe = observe or (lambda name, outcome, seconds: None)

    async def __call__(self, path: str, body: bytes) -> tuple[int, bytes]:
        """The HTTP status and body for a POST of `body` to `path`."""
        path, _, _ = path.partition("?")
        webhook = self._webhooks.get(path)
        name = self._name(path)
        if not name:
            return 404, f"nothing is served at {path}".encode()
        started = self._client.clock.monotonic()
        if len(body) > self._max_body_bytes:
            outcome, code, reply = (
                "malformed",
                413,
                f"requests are at most {self._max_body_bytes} bytes".encode(),
            )
        elif webhook is not None:
            outcome, code, reply = await self._admit(webhook, body)
        else:
            outcome, code, reply = self._convert(body)
        self._observe(name, outcome, self._client.clock.monotonic() - started)
        return code, reply

    def late(self, path: str, seconds: float) -> tuple[int, bytes]:
        """The HTTP status and body for a POST to `path` that did not arrive whole within `seconds`."""
        if name := self._name(path):
            self._observe(name, "late", seconds)
        return 408, f"the request did not arrive within {seconds:g} s".encode()

    def _name(self, path: str) -> str:
        """How the metrics call what is at a path; empty if nothing is."""
        if path in self._webhooks:
            return self._webhooks[path].name
        return _CONVERSION if path == CONVERT and self._conversions.crds else ""

    async def _admit(self, webhook: Webhook[Any], body: bytes) -> tuple[Outcome, int, bytes]:
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
            message = f"{webhook.name} did not decide within {limit:g} s; try again"
            return "timeout", 200, _encode(answer(uid, deny(message, code=504, reason="Timeout"), []))
        except ModelMismatch as error:
            return "misfit", 200, _encode(answer(uid, deny(str(error), code=422, reason="Invalid"), []))
        except Exception as error:
            _log.exception("webhook failed, the write is denied", webhook=webhook.name, uid=uid)
            message = (
                f"{webhook.name} failed, so the write is denied: {type(error).__name__}: {error}. "
                "The operator's log tells more."
            )
            return "error", 200, _encode(answer(uid, deny(message, code=500, reason="InternalError"), []))
        return "allowed" if response.allowed else "denied", 200, _encode(reply)

    def _convert(self, body: bytes) -> tuple[Outcome, int, bytes]:
        """Without a time limit: converters are plain functions, and nothing on the event loop can end one of those."""
        try:
            review = _decode_conversion(body)
        except msgspec.DecodeError as error:
            return "malformed", 400, f"not a ConversionReview: {error}".encode()
        reply = self._conversions.review(review)
        result = reply["response"]["result"]
        if result["status"] == "Success":
            return "converted", 200, _encode(reply)
        _log.error("conversion failed", error=result["message"])
        return "error", 200, _encode(reply)
