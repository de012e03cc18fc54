"""Probes of conversion webhooks: a resource is read in another version, and written back in it as a dry run."""

import asyncio
from collections.abc import Mapping
from typing import Any

from kapsa.fleet.domain.health import CheckKind
from kapsa.fleet.domain.health.webhooks import ProbeFacts, ProbeOutcome
from kapsa.fleet.infrastructure.clusters.answers import reason_of
from kapsa.fleet.infrastructure.health.resource_reader import CrdContent, CrdVersion
from kapsa.fleet.infrastructure.health.sample_objects import minimal_object
from kapsa.fleet.infrastructure.health.timed_calls import ServerBusy, TimedCalls
from kapsa.runtime import ApiError, BadRequest, Client, Forbidden, Invalid, TransportError

__all__ = ["ConversionProber"]

_SECONDS = 5.0
_SLOW = 1.0
"""The time above which a read is repeated, and the faster one counts."""
_MOST_VERSIONS = 3
_FAILED = "conversion webhook"


class ConversionProber:
    """Probes of the conversions of one operator's CRDs."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._calls = TimedCalls(client)

    async def probe(self, crds: tuple[CrdContent, ...]) -> list[ProbeFacts]:
        """Return one probe of each version that a webhook converts to."""
        probes = [
            self._version(crd, version)
            for crd in crds
            if crd.converts
            for version in [each for each in crd.spec.versions if each.served and not each.storage][
                :_MOST_VERSIONS
            ]
        ]
        return list(await asyncio.gather(*probes))

    async def _version(self, crd: CrdContent, version: CrdVersion) -> ProbeFacts:
        name = f"conversion of {crd.metadata.name} to {version.name}"
        try:
            async with self._calls.limited(_SECONDS):
                outcome, message, seconds = await self._round_trip(crd, version)
        except ServerBusy as error:
            return ProbeFacts(CheckKind.CONVERSION, name, ProbeOutcome.BLOCKED, str(error))
        except TimeoutError:
            message = f"no answer within {_SECONDS:g} seconds: timeout"
            return ProbeFacts(CheckKind.CONVERSION, name, ProbeOutcome.FAILED, message)
        return ProbeFacts(CheckKind.CONVERSION, name, outcome, message, seconds)

    async def _round_trip(self, crd: CrdContent, version: CrdVersion) -> tuple[ProbeOutcome, str, float]:
        _, usual = await self._calls.run(self._first(crd.kind(crd.stored)))
        listed, seconds = await self._calls.run(self._first(crd.kind(version)))
        if isinstance(listed, Exception):
            return *_outcome(listed), 0.0
        if seconds - usual >= _SLOW:
            _, again = await self._calls.run(self._first(crd.kind(version)))
            seconds = min(seconds, again)
        seconds = max(0.0, seconds - usual)
        body = listed or minimal_object(crd, version, self._namespace)
        call = self._client.replace(body, dry_run=True) if listed else self._client.create(body, dry_run=True)
        answer, _ = await self._calls.run(call)
        if isinstance(answer, Exception):
            outcome, message = _outcome(answer)
            if listed and outcome is not ProbeOutcome.FAILED:
                outcome = ProbeOutcome.ANSWERED  # the read has shown that the webhook converts
            return outcome, message, seconds
        lost = _lost(body.get("spec"), answer.get("spec"), "spec")
        if lost:
            return ProbeOutcome.CHANGED, f"a round trip loses {lost}", seconds
        return ProbeOutcome.ANSWERED, "", seconds

    async def _first(self, kind: str) -> dict[str, Any] | None:
        async for page in self._client.pages(kind, limit=1):
            return page.items[0] if page.items else None
        return None


def _outcome(error: Exception) -> tuple[ProbeOutcome, str]:
    if isinstance(error, TransportError):
        raise error
    text = reason_of(error)
    if isinstance(error, ApiError) and _FAILED in text:
        return ProbeOutcome.FAILED, text
    # An object that the schema or somebody's webhook refuses proves nothing, and speaks against nothing.
    refused = isinstance(error, Invalid | BadRequest | Forbidden)
    return (ProbeOutcome.REACHABLE if refused else ProbeOutcome.BLOCKED), text


def _lost(before: Any, after: Any, path: str) -> str:
    """Return the path of a field that a round trip drops. One that changes may be an admission webhook's work."""
    if not isinstance(before, Mapping):
        return ""
    if not isinstance(after, Mapping):
        return path
    for key, value in before.items():
        if key not in after:
            return f"{path}.{key}"
        lost = _lost(value, after[key], f"{path}.{key}")
        if lost:
            return lost
    return ""
