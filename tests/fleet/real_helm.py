"""The real helm behind the gate, on a cluster of the test: releases of small charts, and what it leaves behind."""

from __future__ import annotations

import hashlib
import itertools
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from kapsa.adapters.testing.chart_server import pack_chart
from kapsa.devcluster import DevCluster
from kapsa.fleet.domain.deployments import ConflictPolicy
from kapsa.fleet.domain.errors import UnknownObject
from kapsa.fleet.domain.releases import ReleaseIntent, ReleaseRef
from kapsa.fleet.infrastructure.clusters.gateway import untrusted_client
from kapsa.fleet.infrastructure.helm.gated_helm import GatedHelm, HelmBounds
from kapsa.fleet.orchestrator.ports.helm import UpgradeRequest
from kapsa.fleet.orchestrator.ports.leases import LeaseGuard
from kapsa.runtime import Client
from tests.fleet.audit_recorder import AuditRecorder

__all__ = ["CLUSTER", "RealHelm", "config_map", "hook_job", "lease", "manifest_of", "real_helm"]

CLUSTER = uuid.UUID("00000000-0000-4000-8000-00000000c1a5")
_numbers = itertools.count(1)


def lease(seconds: float = 60.0) -> LeaseGuard:
    """Return the guard of a lease that this process holds."""
    return LeaseGuard(time.monotonic() + seconds, time.monotonic)


def config_map(name: str, namespace: str, **data: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def hook_job(name: str, namespace: str, hook: str) -> dict[str, Any]:
    """Return a hook that is done as soon as it exists."""
    made = config_map(name, namespace, hook=hook)
    return {**made, "metadata": {**made["metadata"], "annotations": {"helm.sh/hook": hook}}}


def manifest_of(*objects: Mapping[str, Any]) -> bytes:
    return "".join(f"---\n{json.dumps(each)}\n" for each in objects).encode()


class RealHelm:
    """The adapter on one cluster, with charts that it can install."""

    def __init__(self, client: Client, bounds: HelmBounds | None = None) -> None:
        self.client = client
        self.audit = AuditRecorder()
        self.archives: dict[str, bytes] = {}
        self.connected: Callable[[], Client] = lambda: client
        self.namespace = f"helm-{next(_numbers)}-{uuid.uuid4().hex[:5]}"
        self.helm = GatedHelm(self, self, self.connect, self.audit, bounds)  # type: ignore[arg-type]

    # The ports that the adapter stands on.

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        yield None

    async def now(self) -> datetime:
        return datetime.now(UTC)

    async def archive(self, connection: None, digest: str) -> bytes | None:
        return self.archives.get(digest)

    @asynccontextmanager
    async def connect(self, cluster_id: uuid.UUID) -> AsyncIterator[Client]:
        if cluster_id != CLUSTER:
            raise UnknownObject(f"there is no cluster {cluster_id}")
        yield self.connected()

    # What tests do with it.

    def release(self, name: str = "demo") -> ReleaseRef:
        return ReleaseRef(name, self.namespace)

    def chart(self, version: str = "1.0.0", files: Mapping[str, str | bytes] | None = None) -> str:
        """Store a chart, and return its digest."""
        template = {"templates/note.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: note}\n"}
        content = pack_chart("demo", version, template if files is None else files)
        digest = "sha256:" + hashlib.sha256(content).hexdigest()
        self.archives[digest] = content
        return digest

    def request(self, *objects: Mapping[str, Any], version: str = "1.0.0", **changes: Any) -> UpgradeRequest:
        """Return a request that applies these objects."""
        deployment = str(changes.pop("deployment", "d-1"))
        intent = ReleaseIntent(self.release(), 1, deployment, 1, "sha256:" + "a" * 64)
        fields: dict[str, Any] = {
            "cluster_id": CLUSTER,
            "release": self.release(),
            "chart_digest": changes.pop("chart_digest", None) or self.chart(version),
            "manifest": manifest_of(*(objects or (config_map("app", self.namespace, version=version),))),
            "values": {},
            "labels": intent.labels,
            "description": f"demo {version}",
            "on_conflict": ConflictPolicy.FAIL,
        }
        return UpgradeRequest(**{**fields, **changes})

    async def upgrade(self, version: str = "1.0.0", **changes: Any) -> int:
        return await self.helm.upgrade(self.request(version=version, **changes), lease())

    async def states(self) -> list[tuple[int, str]]:
        """Return revision and status of the release's history."""
        return [
            (each.revision, each.status.value) for each in await self.helm.history(CLUSTER, self.release())
        ]

    async def data(self, name: str = "app") -> dict[str, str]:
        live = await self.client.get("v1/ConfigMap", name, namespace=self.namespace)
        return dict(live.get("data") or {})


@asynccontextmanager
async def real_helm(cluster: DevCluster, bounds: HelmBounds | None = None) -> AsyncIterator[RealHelm]:
    """Open the adapter on a cluster, through the same untrusted client as a manager has."""
    client = untrusted_client(json.dumps(cluster.kubeconfig_data).encode(), allow_loopback=True)
    made = RealHelm(client, bounds)
    async with client:
        yield made
        await made.helm.close()
