"""One sweep of one cluster: what several operators share is read once, and a part that cannot be read is unknown."""

import asyncio
import time
from collections.abc import Awaitable, Sequence
from datetime import datetime
from typing import TypeVar

from kapsa.fleet.domain.health import CheckKind, Evidence, HealthCheck
from kapsa.fleet.domain.health.certificates import CertificateFacts
from kapsa.fleet.domain.health.judgement import OperatorFacts
from kapsa.fleet.domain.health.memory import HealthMemory
from kapsa.fleet.domain.health.resources import KindFacts
from kapsa.fleet.domain.health.workloads import WorkloadFacts
from kapsa.fleet.infrastructure.clusters.answers import log_unreadable, reason_of
from kapsa.fleet.infrastructure.health.certificate_reader import read_certificates
from kapsa.fleet.infrastructure.health.conversion_prober import ConversionProber
from kapsa.fleet.infrastructure.health.metrics import WHOLE_CHECK, HealthMetrics
from kapsa.fleet.infrastructure.health.release_reader import DeployedRelease
from kapsa.fleet.infrastructure.health.resource_reader import CrdContent, read_crd, read_kind
from kapsa.fleet.infrastructure.health.webhook_prober import WebhookProber
from kapsa.fleet.infrastructure.health.workload_reader import (
    WORKLOADS,
    NamespaceContent,
    lease_facts,
    read_namespace,
    workload_facts,
)
from kapsa.fleet.infrastructure.telemetry.spans import child_span
from kapsa.runtime import ApiError, Client, ClientError, DecodeError, Unauthorized, UnknownKind

__all__ = ["ClusterHealthReading"]

T = TypeVar("T")
_CRD = "CustomResourceDefinition"
_SPANS = {
    CheckKind.PODS: "pod.healthcheck",
    CheckKind.WEBHOOKS: "webhook.healthcheck",
    CheckKind.CONVERSION: "conversion.healthcheck",
    CheckKind.RESOURCES: "crd.reconciliation.check",
}


class ClusterHealthReading:
    """The facts of a cluster at one time. Namespaces that several operators share are read once."""

    def __init__(self, client: Client, now: datetime, metrics: HealthMetrics | None = None) -> None:
        self._client = client
        self._now = now
        self._metrics = metrics
        self._namespaces: dict[str, asyncio.Task[NamespaceContent]] = {}

    async def facts(
        self,
        release: DeployedRelease,
        chart_digest: str,
        crds: Sequence[str],
        memory: HealthMemory,
        *,
        certificates: bool = False,
    ) -> OperatorFacts:
        """Return the facts about an operator, and about the certificates of its webhooks if they are asked for."""
        started = time.perf_counter()
        unread: list[HealthCheck] = []
        pods = self._timed(CheckKind.PODS, self._workloads(release))
        workloads, contents = await self._part(CheckKind.PODS, pods, ((), ()), unread)
        names = sorted({*crds, *(each.name for each in release.of_kind(_CRD))})
        definitions = await self._part(CheckKind.RESOURCES, self.definitions(names), (), unread)
        resources = self._timed(CheckKind.RESOURCES, self.kinds(definitions))
        kinds = await self._part(CheckKind.RESOURCES, resources, (), unread)
        admission = WebhookProber(self._client, release, definitions)
        webhooks = self._timed(CheckKind.WEBHOOKS, admission.probe())
        probes = await self._part(CheckKind.WEBHOOKS, webhooks, [], unread)
        conversion = ConversionProber(self._client, release.ref.namespace)
        conversions = self._timed(CheckKind.CONVERSION, conversion.probe(definitions))
        probes = probes + await self._part(CheckKind.CONVERSION, conversions, [], unread)
        self._record(WHOLE_CHECK, started)
        return OperatorFacts(
            revision=release.revision,
            chart_digest=chart_digest,
            workloads=workloads,
            kinds=kinds,
            probes=tuple(probes),
            leases=tuple(lease_facts(contents, workloads, memory, self._now)),
            certificates=await self._certificates(release, definitions, contents) if certificates else None,
            unread=tuple(unread),
        )

    async def definitions(self, names: Sequence[str]) -> tuple[CrdContent, ...]:
        """Return CRDs by their names, without those that the cluster does not have."""
        read = await asyncio.gather(*(read_crd(self._client, name) for name in names))
        return tuple(each for each in read if each is not None)

    async def kinds(self, definitions: Sequence[CrdContent]) -> tuple[KindFacts, ...]:
        """Return the resources of CRDs that are not current."""
        return tuple(await asyncio.gather(*(read_kind(self._client, each) for each in definitions)))

    async def _certificates(
        self, release: DeployedRelease, crds: Sequence[CrdContent], contents: Sequence[NamespaceContent]
    ) -> tuple[CertificateFacts, ...] | None:
        """Return the certificates of webhooks, None if the cluster refuses: no check depends on them."""
        try:
            return await read_certificates(self._client, release, crds, contents)
        except Unauthorized:
            raise
        except (ApiError, DecodeError, UnknownKind):
            return None

    async def _workloads(
        self, release: DeployedRelease
    ) -> tuple[tuple[WorkloadFacts, ...], tuple[NamespaceContent, ...]]:
        objects = release.of_kind(*WORKLOADS)
        namespaces = sorted({release.ref.namespace, *(each.namespace for each in objects)})
        contents = {namespace: await self._namespace(namespace) for namespace in namespaces}
        facts = tuple(workload_facts(contents[each.namespace], each, self._now) for each in objects)
        return facts, tuple(contents.values())

    async def _namespace(self, namespace: str) -> NamespaceContent:
        task = self._namespaces.get(namespace)
        if task is None:
            task = self._namespaces[namespace] = asyncio.create_task(read_namespace(self._client, namespace))
        return await asyncio.shield(task)

    async def close(self) -> None:
        """End what is still being read."""
        for task in self._namespaces.values():
            task.cancel()
        await asyncio.gather(*self._namespaces.values(), return_exceptions=True)

    async def _part(self, kind: CheckKind, reading: Awaitable[T], empty: T, unread: list[HealthCheck]) -> T:
        """Return what a reading gave. One that the cluster refuses leaves an unknown check in `unread`."""
        try:
            return await reading
        except Unauthorized:
            raise
        except (ApiError, DecodeError, UnknownKind) as error:
            unread.append(HealthCheck(kind, Evidence.UNKNOWN, _word(error), reason_of(error)))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            log_unreadable("the cluster", error)
            message = f"the cluster sent an object that is not valid: {type(error).__name__}"
            unread.append(HealthCheck(kind, Evidence.UNKNOWN, "InvalidAnswer", message))
        return empty

    async def _timed(self, check: CheckKind, reading: Awaitable[T]) -> T:
        started = time.perf_counter()
        with child_span(_SPANS[check]):
            given = await reading
        self._record(check, started)
        return given

    def _record(self, check: str, started: float) -> None:
        if self._metrics is not None:
            self._metrics.record_duration(check, time.perf_counter() - started)


def _word(error: ClientError) -> str:
    """Return a word for an error. The reason of an API error is the cluster's, so it may be anything."""
    reason = error.reason if isinstance(error, ApiError) else type(error).__name__
    return reason if reason.isalnum() and len(reason) <= 40 else "ApiError"
