"""Cluster operations on a devcluster: charts and deployments in memory, releases as Helm stores them."""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import json
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import msgspec

from kapsa.devcluster import DevCluster
from kapsa.fleet.domain.errors import UnknownObject
from kapsa.fleet.domain.health import OperatorHealth
from kapsa.fleet.domain.rollout.releases import DEPLOYMENT_LABEL, ReleaseRef
from kapsa.fleet.infrastructure.clusters.gateway import ClusterClient
from kapsa.fleet.infrastructure.operations.cluster_operations import ManagedClusterOperations
from kapsa.fleet.infrastructure.operations.crds.storage_migration import StorageMigration
from kapsa.fleet.infrastructure.operations.handover.controllers import LeaseWatch
from kapsa.fleet.infrastructure.operations.leased_clients import LeasedClients
from kapsa.fleet.orchestrator.ports.charts import ChartCrd
from kapsa.fleet.orchestrator.ports.cluster_operations import CrdRequest
from kapsa.fleet.orchestrator.ports.leases import LeaseGuard
from kapsa.runtime import Client, NotFound, UnknownKind
from tests.fleet.audit_recorder import AuditRecorder

CLUSTER = uuid.uuid4()
CRD = "apiextensions.k8s.io/v1/CustomResourceDefinition"
DEPLOYMENT = uuid.uuid4()
Manifest = dict[str, Any]


def lease(seconds: float = 600.0) -> LeaseGuard:
    """Return the guard of a lease that this process holds."""
    return LeaseGuard(time.monotonic() + seconds, time.monotonic)


class LimitedLease(LeaseGuard):
    """A lease that lapses after a number of writes."""

    def __init__(self, writes: int) -> None:
        super().__init__(1.0, self._clock)
        # The session begins with a check, and a write is checked before it waits for a connection, and after.
        self._left = 2 * writes + 1
        self._spent = 0.0

    def _clock(self) -> float:
        return self._spent

    def check(self) -> None:
        self._left -= 1
        if self._left < 0:
            self._spent = 2.0
        super().check()

    @property
    def remaining(self) -> float:
        return 60.0 if self._spent < 1.0 else -1.0


def manifest_of(*objects: Manifest) -> bytes:
    return "".join(f"---\n{json.dumps(each)}\n" for each in objects).encode()


def owned(manifest: Manifest, release: ReleaseRef) -> Manifest:
    """Return an object with the annotations of a release, as Helm applies it."""
    marks = {"meta.helm.sh/release-name": release.name, "meta.helm.sh/release-namespace": release.namespace}
    annotations = {**(manifest["metadata"].get("annotations") or {}), **marks}
    return {**manifest, "metadata": {**manifest["metadata"], "annotations": annotations}}


class Operations:
    """The operations under test on one cluster, with a kind and namespaces that no other test has."""

    def __init__(self, client: Client, *, settle_seconds: float = 0.0, patience_seconds: float = 0.5) -> None:
        self.client = client
        self.settle_seconds = settle_seconds
        self.audit = AuditRecorder()
        self.charts: dict[str, list[ChartCrd]] = {}
        self.mark = f"t{uuid.uuid4().hex[:8]}"
        self.group = f"{self.mark}.example.com"
        self.crd_name = f"widgets.{self.group}"
        self.blue = ReleaseRef("widget", f"{self.mark}-blue")
        self.green = ReleaseRef("widget-green", f"{self.mark}-green")
        self.seconds = 0.0
        self.revisions: dict[ReleaseRef, int] = {}
        self.under_test = ManagedClusterOperations(
            LeasedClients(self.connect, self, self.audit),
            self,
            self,  # type: ignore[arg-type] - the one method of the repository that is used
            SimpleNamespace(deployment=self.deployment),  # type: ignore[arg-type]
            self,
            migration=StorageMigration(
                page_size=10,
                poll_seconds=0.01,
                polls=200,
                settle_seconds=settle_seconds,
                patience_seconds=patience_seconds,
            ),
            leases=LeaseWatch(lambda: self.seconds),
        )

    # The ports that the operations stand on.

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        yield None

    async def now(self) -> Any:
        raise NotImplementedError

    async def crds_of_chart(self, connection: None, digest: str) -> list[ChartCrd]:
        return self.charts.get(digest, [])

    async def deployment(self, connection: None, deployment_id: uuid.UUID) -> Any:
        return SimpleNamespace(chart_digest="sha256:green") if deployment_id == DEPLOYMENT else None

    async def observe(self, cluster_id: uuid.UUID, release: ReleaseRef, **_: Any) -> OperatorHealth:
        return OperatorHealth(7, str(release), ())

    async def record_baseline(self, *_: Any) -> None:
        raise NotImplementedError

    @asynccontextmanager
    async def connect(self, cluster_id: uuid.UUID) -> AsyncIterator[Client]:
        if cluster_id != CLUSTER:
            raise UnknownObject(f"there is no cluster {cluster_id}")
        yield self.client

    # What tests do with it.

    def version(self, name: str, *, storage: bool = False, fields: tuple[str, ...] = ("size",)) -> Manifest:
        properties = {each: {"type": "integer"} for each in fields}
        spec = {"type": "object", "properties": properties}
        schema = {"type": "object", "properties": {"spec": spec}}
        return {"name": name, "served": True, "storage": storage, "schema": {"openAPIV3Schema": schema}}

    def crd(self, *versions: Manifest, plural: str = "widgets", **spec: Any) -> Manifest:
        kind = plural.removesuffix("s").capitalize()
        names = {"plural": plural, "kind": kind, "singular": kind.lower(), "listKind": f"{kind}List"}
        fields = {"group": self.group, "scope": "Namespaced", "names": names}
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{self.group}"},
            "spec": {**fields, "versions": list(versions), **spec},
        }

    def chart(self, digest: str, *crds: Manifest) -> str:
        """Store a chart with these CRDs in `crds/`."""
        self.charts[digest] = [ChartCrd(each["metadata"]["name"], "crds", each) for each in crds]
        return digest

    def deployment_of(self, digest: str) -> uuid.UUID:
        """Return the deployment of a chart, for tests that deploy it once. Tests may share a control plane."""
        return uuid.uuid5(uuid.NAMESPACE_OID, f"{self.mark} {digest}")

    def request(
        self,
        digest: str,
        *objects: Manifest,
        following: ReleaseRef | None = None,
        deployment: str = "",
        base: str | None = "",
    ) -> CrdRequest:
        return CrdRequest(
            cluster_id=CLUSTER,
            chart_digest=digest,
            deployment_id=self.deployment_of(deployment or digest),
            live=self.blue,
            next=following or self.blue,
            manifest=manifest_of(*objects),
            base_chart=base,
        )

    async def apply(self, digest: str, *objects: Manifest, **changes: Any) -> None:
        await self.under_test.apply_crds(self.request(digest, *objects, **changes), lease())

    async def revert(self, deployment: str) -> tuple[str, ...]:
        return await self.under_test.revert_crds(CLUSTER, self.deployment_of(deployment), lease())

    async def live_crd(self, name: str = "") -> Manifest:
        return await self.client.get(CRD, name or self.crd_name)

    async def crd_exists(self, name: str) -> bool:
        try:
            await self.client.get(CRD, name)
        except NotFound:
            return False
        return True

    async def namespace(self, name: str) -> None:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await self.client.apply(body, force=True)

    async def create_widgets(self, count: int, version: str) -> None:
        await self._served(version)
        for number in range(count):
            await self.client.create(
                {
                    "apiVersion": f"{self.group}/{version}",
                    "kind": "Widget",
                    "metadata": {"name": f"w{number:03}", "namespace": "default"},
                    "spec": {"size": number},
                }
            )

    async def _served(self, version: str) -> None:
        """Wait until the API server serves widgets: it does so a moment after their CRD is established."""
        async with asyncio.timeout(120):
            while True:
                try:
                    await self.client.list(f"{self.group}/{version}/Widget", namespace="default")
                except (UnknownKind, NotFound):
                    await asyncio.sleep(0.1)
                else:
                    return

    async def content(self, version: str) -> str:
        """Return a hash over the names, labels and specs of all widgets, as a version shows them."""
        widgets = await self.client.list(f"{self.group}/{version}/Widget", namespace="default")
        content = [[each["metadata"]["name"], each["metadata"]["uid"], each["spec"]] for each in widgets]
        return hashlib.sha256(msgspec.json.encode(content)).hexdigest()

    async def install(self, release: ReleaseRef, *objects: Manifest, stored: bool = True) -> None:
        """Apply objects as Helm does, by server-side apply as `helm`, and store the release."""
        await self.namespace(release.namespace)
        for each in objects:
            await self.client.apply(owned(each, release), field_manager="helm", force=False)
        if stored:
            await self.forge(release, *objects)

    async def forge(self, release: ReleaseRef, *objects: Manifest) -> None:
        """Store a revision of a release, whether its objects exist or not."""
        self.revisions[release] = revision = self.revisions.get(release, 0) + 1
        await self.client.create(_secret(release, revision, objects))


def _secret(release: ReleaseRef, revision: int, objects: tuple[Manifest, ...]) -> Manifest:
    content = {
        "name": release.name,
        "namespace": release.namespace,
        "version": revision,
        "info": {"status": "deployed"},
        "manifest": manifest_of(*objects).decode(),
    }
    packed = base64.b64encode(gzip.compress(json.dumps(content).encode()))
    labels = {"owner": "helm", "name": release.name, "status": "deployed", "version": str(revision)}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "helm.sh/release.v1",
        "metadata": {
            "name": f"sh.helm.release.v1.{release.name}.v{revision}",
            "namespace": release.namespace,
            "labels": {**labels, DEPLOYMENT_LABEL: str(DEPLOYMENT)},
        },
        "data": {"release": base64.b64encode(packed).decode()},
    }


@asynccontextmanager
async def operations_on(cluster: DevCluster, engine: str) -> AsyncIterator[Operations]:
    """Open the operations on a cluster.

    A real API server takes a moment to see a new storage version, and, on a busy machine, to reach a webhook.
    """
    settle, patience = (5.0, 10.0) if engine == "real" else (0.0, 0.5)
    async with ClusterClient.connect(kubeconfig=cluster.kubeconfig) as client:
        yield Operations(client, settle_seconds=settle, patience_seconds=patience)
