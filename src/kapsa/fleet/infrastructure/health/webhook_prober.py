"""Probes of admission webhooks: a dry-run write that each selects, sent through the API server, which verifies it.

A webhook that no write can be made for is judged by its endpoints. Several webhooks that select one object share the
write: the API server names the one that failed.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from kapsa.fleet.domain.health import CheckKind
from kapsa.fleet.domain.health.webhooks import ProbeFacts, ProbeOutcome
from kapsa.fleet.infrastructure.clusters.answers import reason_of
from kapsa.fleet.infrastructure.health.release_reader import DeployedRelease
from kapsa.fleet.infrastructure.health.resource_reader import CrdContent
from kapsa.fleet.infrastructure.health.sample_objects import (
    copied_object,
    core_object,
    minimal_object,
    selects,
)
from kapsa.fleet.infrastructure.health.timed_calls import ServerBusy, TimedCalls
from kapsa.fleet.infrastructure.operations.handover.idle_marks import is_idle
from kapsa.runtime import ApiError, Client, NotFound, Timeout, TooManyRequests, TransportError, Unavailable

__all__ = ["CONFIGURATIONS", "WebhookProber"]

CONFIGURATIONS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_GROUP = "admissionregistration.k8s.io/v1"
_SECONDS = 5.0
"""The longest write. The limit of a healthy one is far below."""
_SLOW = 1.0
"""The time above which a write is repeated, and the faster one counts: one pause of anybody is not a slow webhook."""
_CANDIDATES = 50
_NAMED = re.compile(r'failed calling webhook "([^"]+)"')
_CALLED = re.compile(r'admission webhook "([^"]+)" denied')


class _Webhook(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    client_config: dict[str, Any] = {}
    rules: tuple[dict[str, Any], ...] | None = None
    namespace_selector: dict[str, Any] | None = None
    object_selector: dict[str, Any] | None = None
    match_conditions: tuple[dict[str, Any], ...] | None = None

    @property
    def idle(self) -> bool:
        return is_idle({"matchConditions": self.match_conditions})


class _Configuration(msgspec.Struct, frozen=True):
    webhooks: tuple[_Webhook, ...] | None = None


class _Write(msgspec.Struct, frozen=True):
    """A dry-run write, by what it does: writes with the same key are one."""

    key: str
    send: Callable[[], Awaitable[Any]]
    read: Callable[[], Awaitable[Any]]


class WebhookProber:
    """Probes of the webhooks of one operator."""

    def __init__(self, client: Client, release: DeployedRelease, crds: Sequence[CrdContent]) -> None:
        self._client = client
        self._release = release
        self._crds = crds
        self._calls = TimedCalls(client)
        self._labels: dict[str, dict[str, str]] = {}

    async def probe(self) -> list[ProbeFacts]:
        """Return one probe of each webhook of the release."""
        facts: list[ProbeFacts] = []
        writes: dict[str, tuple[_Write, list[_Webhook]]] = {}
        for configuration in self._release.of_kind(*CONFIGURATIONS):
            try:
                live = await self._client.get(
                    f"{_GROUP}/{configuration.kind}", configuration.name, into=_Configuration
                )
            except NotFound:
                facts.append(_facts(configuration.name, ProbeOutcome.MISSING, "it does not exist"))
                continue
            for webhook in (each for each in live.webhooks or () if not each.idle):
                write = await self._write(webhook)
                if write is None:
                    facts.append(await self._endpoints(webhook, "no object that it selects"))
                else:
                    writes.setdefault(write.key, (write, []))[1].append(webhook)
        proofs = [self._prove(write, webhooks) for write, webhooks in writes.values()]
        for proven in await asyncio.gather(*proofs):
            facts += proven
        return facts

    async def _prove(self, write: _Write, webhooks: Sequence[_Webhook]) -> list[ProbeFacts]:
        """Send one write, and return what it says about each webhook that selects it."""
        _, usual = await self._calls.run(write.read())
        try:
            answer, seconds = await self._timed(write)
            if seconds - usual >= _SLOW:
                answer, again = await self._timed(write)
                seconds = min(seconds, again)
        except ServerBusy as error:
            return [_facts(each.name, ProbeOutcome.BLOCKED, str(error)) for each in webhooks]
        except TimeoutError:
            message = f"a dry-run write got no answer within {_SECONDS:g} seconds"
            return [_facts(each.name, ProbeOutcome.FAILED, f"{message}: timeout") for each in webhooks]
        extra = max(0.0, seconds - usual)
        if not isinstance(answer, Exception):
            return [_facts(each.name, ProbeOutcome.ANSWERED, seconds=extra) for each in webhooks]
        return [await self._failure(each, answer, extra) for each in webhooks]

    async def _timed(self, write: _Write) -> tuple[Any, float]:
        async with self._calls.limited(_SECONDS):
            return await self._calls.run(write.send())

    async def _failure(self, webhook: _Webhook, error: Exception, seconds: float) -> ProbeFacts:
        text = reason_of(error)
        failed = _NAMED.search(text)
        if failed is not None and failed[1] == webhook.name:
            return _facts(webhook.name, ProbeOutcome.FAILED, text)
        denied = _CALLED.search(text)
        if denied is not None and denied[1] == webhook.name:
            return _facts(webhook.name, ProbeOutcome.ANSWERED, seconds=seconds)
        if isinstance(error, TransportError):
            raise error
        if not isinstance(error, ApiError) or isinstance(error, TooManyRequests | Unavailable | Timeout):
            return _facts(webhook.name, ProbeOutcome.BLOCKED, text)
        # The write is refused for what it is, by a schema, a quota or somebody else's webhook.
        reached = await self._endpoints(webhook, text)
        return msgspec.structs.replace(reached, seconds=seconds)

    async def _endpoints(self, webhook: _Webhook, why: str) -> ProbeFacts:
        """Return whether anything can answer a webhook that no write proves."""
        service = webhook.client_config.get("service")
        if not isinstance(service, Mapping):
            return _facts(webhook.name, ProbeOutcome.REACHABLE, why)
        namespace, name = str(service.get("namespace", "")), str(service.get("name", ""))
        selector = {"kubernetes.io/service-name": name}
        slices = await self._client.list(
            "discovery.k8s.io/v1/EndpointSlice", namespace=namespace, label_selector=selector
        )
        for each in slices.items:
            for endpoint in each.get("endpoints") or ():
                if (endpoint.get("conditions") or {}).get("ready") is not False:
                    return _facts(webhook.name, ProbeOutcome.REACHABLE, why)
        message = f"Service {namespace}/{name} has no ready endpoints"
        return _facts(webhook.name, ProbeOutcome.NO_ENDPOINTS, message)

    async def _write(self, webhook: _Webhook) -> _Write | None:
        """Return a dry-run write that a webhook selects, None if there is none that is safe to make."""
        for rule in webhook.rules or ():
            operations = set(rule.get("operations") or ())
            for crd in self._crds:
                if _covers(rule, "apiGroups", crd.spec.group) and _covers(
                    rule, "resources", crd.spec.names.plural
                ):
                    write = await self._custom_write(webhook, crd, operations)
                    if write is not None:
                        return write
            write = await self._core_write(webhook, rule, operations)
            if write is not None:
                return write
        return None

    async def _custom_write(self, webhook: _Webhook, crd: CrdContent, operations: set[str]) -> _Write | None:
        version = crd.stored
        kind = crd.kind(version)
        live = await self._candidate(webhook, kind)
        if live is not None and operations & {"*", "UPDATE"}:
            return self._update(kind, live)
        if not operations & {"*", "CREATE"}:
            return None
        body = copied_object(live) if live is not None else None
        if body is None:
            namespace = await self._selected_namespace(webhook) if crd.namespaced else ""
            if namespace is None or not selects(webhook.object_selector, {}):
                return None
            body = minimal_object(crd, version, namespace)
        return self._create(kind, body)

    async def _core_write(
        self, webhook: _Webhook, rule: Mapping[str, Any], operations: set[str]
    ) -> _Write | None:
        if not operations & {"*", "CREATE"} or not selects(webhook.object_selector, {}):
            return None
        namespace = await self._selected_namespace(webhook)
        for group in rule.get("apiGroups") or ():
            for resource in rule.get("resources") or ():
                chosen = "configmaps" if resource in ("*", "*/*") else str(resource)
                body = core_object("" if group == "*" else str(group), chosen, namespace or "")
                if body is not None and namespace is not None:
                    return self._create(f"{body['apiVersion']}/{body['kind']}", body)
        return None

    def _update(self, kind: str, live: Mapping[str, Any]) -> _Write:
        name, namespace = live["metadata"]["name"], live["metadata"].get("namespace", "")

        async def send() -> object:
            return await self._client.patch(kind, name, {}, namespace=namespace, dry_run=True)

        async def read() -> object:
            return await self._client.get(kind, name, namespace=namespace)

        return _Write(f"update {kind} {namespace}/{name}", send, read)

    def _create(self, kind: str, body: dict[str, Any]) -> _Write:
        metadata = body["metadata"]

        async def send() -> object:
            return await self._client.create(body, dry_run=True)

        async def read() -> object:
            return await self._client.get(kind, metadata["name"], namespace=metadata.get("namespace", ""))

        return _Write(f"create {kind} {metadata.get('namespace', '')}", send, read)

    async def _candidate(self, webhook: _Webhook, kind: str) -> dict[str, Any] | None:
        """Return a resource that a webhook selects."""
        async for page in self._client.pages(kind, limit=_CANDIDATES):
            for each in page.items:
                metadata = each["metadata"]
                if metadata.get("deletionTimestamp"):
                    continue
                if not selects(webhook.object_selector, metadata.get("labels") or {}):
                    continue
                if selects(webhook.namespace_selector, await self._namespace(metadata.get("namespace", ""))):
                    return each
            break
        return None

    async def _selected_namespace(self, webhook: _Webhook) -> str | None:
        """Return a namespace that a webhook selects, the release's own if possible."""
        own = self._release.ref.namespace
        if selects(webhook.namespace_selector, await self._namespace(own)):
            return own
        async for page in self._client.pages("v1/Namespace", metadata_only=True):
            for each in page.items:
                if selects(webhook.namespace_selector, each["metadata"].get("labels") or {}):
                    return str(each["metadata"]["name"])
            break
        return None

    async def _namespace(self, name: str) -> dict[str, str]:
        """Return the labels of a namespace; none for an object without one."""
        if name and name not in self._labels:
            try:
                live = await self._client.get("v1/Namespace", name, metadata_only=True)
            except NotFound:
                return {}
            self._labels[name] = live["metadata"].get("labels") or {}
        return self._labels.get(name, {})


def _covers(rule: Mapping[str, Any], field: str, value: str) -> bool:
    return any(each in ("*", "*/*", value) for each in rule.get(field) or ())


def _facts(name: str, outcome: ProbeOutcome, message: str = "", *, seconds: float = 0.0) -> ProbeFacts:
    return ProbeFacts(CheckKind.WEBHOOKS, f"webhook {name}", outcome, message, seconds)
