"""A small operator on a devcluster: its release as Helm stores it, its controller, its CRD and its resources.

There is no controller behind the pods: a test plays it with `reconcile`, `renew_lease` and a webhook server.
"""

from __future__ import annotations

import base64
import gzip
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import yaml

from kapsa.devcluster import DevCluster
from kapsa.fleet.domain.health import OperatorHealth
from kapsa.fleet.domain.registry.operators import ChartFacts, ManagedOperator, OperatorVersion, UploadedChart
from kapsa.fleet.domain.rollout.releases import DEPLOYMENT_LABEL, ReleaseRef
from kapsa.fleet.infrastructure.health.observer import OperatorObserver
from kapsa.fleet.infrastructure.postgres.database import Database
from kapsa.fleet.infrastructure.postgres.health.health_store import PostgresHealth
from kapsa.fleet.infrastructure.postgres.registry.cluster_repository import PostgresClusters
from kapsa.fleet.infrastructure.postgres.registry.operator_repository import PostgresOperators
from kapsa.fleet.infrastructure.postgres.tables.rollouts import deployment, deployment_cluster, installation
from kapsa.fleet.orchestrator.ports.charts import ChartCrd
from kapsa.runtime import Client, NotFound
from tests.eventually import eventually
from tests.fleet.audit_recorder import AuditRecorder
from tests.fleet.examples import START, cluster_id
from tests.fleet.rollout_harness import OPERATOR_ID, managed_cluster
from tests.fleet.served_kinds import served

NAMESPACE = "operators"
RELEASE = ReleaseRef("widget-operator", NAMESPACE)
CLUSTER = cluster_id("dev-1")
CRD = "widgets.example.com"
KIND = "example.com/v1/Widget"
DEPLOYMENT = uuid.UUID(int=99)
DIGEST = "sha256:chart-2"


def controller(
    image: str = "widget:2", replicas: int = 1, volumes: list[Any] | None = None, **fields: Any
) -> dict[str, Any]:
    labels = {"app": "widget-operator"}
    pod: dict[str, Any] = {"containers": [{"name": "manager", "image": image, **fields}]}
    if volumes is not None:
        pod["volumes"] = volumes
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": RELEASE.name, "namespace": NAMESPACE},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def definition(**spec: Any) -> dict[str, Any]:
    def version(name: str, storage: bool) -> dict[str, Any]:
        size = {"type": "object", "properties": {"size": {"type": "integer"}, "shape": {"type": "string"}}}
        status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        schema = {"type": "object", "properties": {"spec": {**size, "required": ["size"]}, "status": status}}
        return {
            "name": name,
            "served": True,
            "storage": storage,
            "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}},
        }

    names = {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"}
    fields = {"group": "example.com", "names": names, "scope": "Namespaced"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": CRD},
        "spec": {**fields, "versions": [version("v1", True), version("v2", False)], **spec},
    }


def release_secret(
    revision: int, *objects: dict[str, Any], labels: dict[str, str] | None = None
) -> dict[str, Any]:
    """Return the Secret in which Helm stores a deployed revision."""
    content = {
        "name": RELEASE.name,
        "namespace": NAMESPACE,
        "version": revision,
        "info": {"status": "deployed"},
        "chart": {"metadata": {"name": RELEASE.name, "version": f"{revision}.0.0"}},
        "manifest": "---\n".join(yaml.safe_dump(each) for each in objects),
    }
    packed = base64.b64encode(gzip.compress(json.dumps(content).encode()))
    marks = {"owner": "helm", "name": RELEASE.name, "status": "deployed", "version": str(revision)}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "helm.sh/release.v1",
        "metadata": {
            "name": f"sh.helm.release.v1.{RELEASE.name}.v{revision}",
            "namespace": NAMESPACE,
            "labels": {**marks, **(labels or {})},
        },
        "data": {"release": base64.b64encode(packed).decode()},
    }


class OperatorFixture:
    """The operator, and the observer that reads it, on virtual time."""

    def __init__(self, cluster: DevCluster, client: Client, database: Database) -> None:
        self.cluster = cluster
        self.client = client
        self.database = database
        self.store = PostgresHealth()
        self.audit = AuditRecorder()
        self.observer = OperatorObserver(self.connect, database, self.store, self.audit)
        self.now = datetime.now(UTC)
        self.offline: BaseException | None = None
        database.set_clock(self.now)

    @asynccontextmanager
    async def connect(self, _: uuid.UUID) -> AsyncIterator[Client]:
        if self.offline is not None:
            raise self.offline
        yield self.client

    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.database.set_clock(self.now)

    async def register(self) -> None:
        """Store the cluster, the operator, and an active deployment of its version 2."""
        async with self.database.transaction() as connection:
            await PostgresClusters().insert(connection, managed_cluster("dev-1"), "uid-1")
            await PostgresOperators().insert(connection, registered_operator())
            version, crds = registered_version()
            await PostgresOperators().insert_version(connection, version, b"chart", crds)
            rows = {"operator_id": OPERATOR_ID, "operator_name": RELEASE.name, "phase": "Validating"}
            document = {"version": "2.0.0", "chartDigest": DIGEST}
            await connection.execute(deployment.insert().values(id=DEPLOYMENT, document=document, **rows))
            await connection.execute(
                deployment_cluster.insert().values(
                    deployment_id=DEPLOYMENT,
                    cluster_id=CLUSTER,
                    operator_id=OPERATOR_ID,
                    cluster_name="dev-1",
                    goal="Apply",
                    state="Validating",
                    active=True,
                    document={},
                )
            )

    async def install(
        self, *extra: dict[str, Any], image: str = "widget:2", revision: int = 2, **fields: Any
    ) -> None:
        """Apply a revision as Helm does: the objects, then the record. Pods start as the devcluster lets them."""
        objects = [controller(image, **fields), *extra]
        for each in ({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}, *objects):
            await self.client.apply(each, force=True, field_manager="helm")
        record = release_secret(revision, *objects, labels={DEPLOYMENT_LABEL: str(DEPLOYMENT)})
        await self.client.apply(record, force=True, field_manager="helm")

    async def change_container(self, change: dict[str, Any], *, field_manager: str) -> None:
        """Change the container of the controller as a client other than Helm does, or remove fields set to None."""
        live = await self.client.get("apps/v1/Deployment", RELEASE.name, namespace=NAMESPACE)
        (container,) = live["spec"]["template"]["spec"]["containers"]
        changed = {key: value for key, value in {**container, **change}.items() if value is not None}
        await self._patch_template({"spec": {"containers": [changed]}}, field_manager)

    async def restart(self) -> None:
        """Start the pods again as `kubectl rollout restart` does."""
        annotations = {"kubectl.kubernetes.io/restartedAt": self.now.isoformat()}
        await self._patch_template({"metadata": {"annotations": annotations}}, "kubectl-rollout")

    async def annotate_template(self, annotation: str, *, field_manager: str) -> None:
        """Annotate the pods of the controller as a tool on the cluster does."""
        await self._patch_template({"metadata": {"annotations": {annotation: "1"}}}, field_manager)

    async def _patch_template(self, template: dict[str, Any], field_manager: str) -> None:
        patch = {"spec": {"template": template}}
        name, manager = RELEASE.name, field_manager
        await self.client.patch("apps/v1/Deployment", name, patch, namespace=NAMESPACE, field_manager=manager)

    async def define(self, **spec: Any) -> None:
        """Apply the CRD, and wait until both versions are served."""
        await self.client.apply(definition(**spec), force=True)
        for version in ("v1", "v2"):
            kind = f"example.com/{version}/Widget"
            await eventually(lambda kind=kind: served(self.client, kind), bool, f"{kind} to be served")

    async def create_widgets(self, count: int) -> None:
        for number in range(count):
            widget = {
                "apiVersion": "example.com/v1",
                "kind": "Widget",
                "metadata": {"name": f"w{number}", "namespace": "default"},
                "spec": {"size": number},
            }
            await self.client.create(widget)

    async def reconcile(self, *names: str, ready: str = "True") -> None:
        """Write the status as a controller does that has seen the latest change."""
        for name in names:
            widget = await self.client.get(KIND, name, namespace="default")
            condition = {
                "type": "Ready",
                "status": ready,
                "reason": "Reconciled",
                "message": f"{name}: {ready}",
            }
            status = {"observedGeneration": widget["metadata"]["generation"], "conditions": [condition]}
            await self.client.patch(KIND, name, {"status": status}, namespace="default", subresource="status")

    async def renew_lease(self, holder: str = "") -> None:
        """Renew the Lease as the controller's pod does."""
        pods = await self.pods()
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "widget-leader", "namespace": NAMESPACE},
            "spec": {
                "holderIdentity": holder or f"{pods[0]['metadata']['name']}_1f0c",
                "leaseDurationSeconds": 15,
                "renewTime": self.now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            },
        }
        await self.client.apply(lease, force=True)

    async def pods(self) -> list[dict[str, Any]]:
        pods = (await self.client.list("v1/Pod", namespace=NAMESPACE)).items
        return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]

    async def ready(self) -> None:
        """Wait until the controller runs at its current template."""

        async def current() -> bool:
            if self.cluster.engine == "real":
                await self._play_kubelet()
            try:
                live = await self.client.get("apps/v1/Deployment", RELEASE.name, namespace=NAMESPACE)
            except NotFound:
                return False
            status = live.get("status") or {}
            seen = status.get("observedGeneration", 0) >= live["metadata"]["generation"]
            return bool(seen and status.get("updatedReplicas") == status.get("readyReplicas") == 1)

        await eventually(current, bool, "the controller to be ready")

    async def _play_kubelet(self) -> None:
        """Report the pods as ready, where no kubelet does."""
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        for pod in await self.pods():
            await self.client.patch(
                "v1/Pod",
                pod["metadata"]["name"],
                {"status": status},
                namespace=NAMESPACE,
                subresource="status",
            )

    async def observe(self) -> OperatorHealth:
        return await self.observer.observe(CLUSTER, RELEASE)

    async def settle(self) -> OperatorHealth:
        """Observe, let the pods settle, and observe again."""
        await self.ready()
        await self.observe()
        self.pass_time(30)
        return await self.observe()

    async def record_installation(self, revision: int = 2) -> None:
        async with self.database.transaction() as connection:
            await connection.execute(
                installation.insert().values(
                    cluster_id=CLUSTER,
                    operator_id=OPERATOR_ID,
                    release_name=RELEASE.name,
                    namespace=NAMESPACE,
                    revision=revision,
                    version="2.0.0",
                    chart_digest=DIGEST,
                )
            )

    async def record_unreadable_release(self, name: str) -> None:
        """Record another operator on the cluster, whose release has a record that nobody can unpack."""
        other = msgspec.structs.replace(registered_operator(), id=uuid.uuid4(), name=name)
        async with self.database.transaction() as connection:
            await PostgresOperators().insert(connection, other)
            await connection.execute(
                installation.insert().values(
                    cluster_id=CLUSTER,
                    operator_id=other.id,
                    release_name=name,
                    namespace=NAMESPACE,
                    revision=1,
                    version="1.0.0",
                    chart_digest="",
                )
            )
        secret = release_secret(1)
        labels = {**secret["metadata"]["labels"], "name": name}
        metadata = {"name": f"sh.helm.release.v1.{name}.v1", "namespace": NAMESPACE, "labels": labels}
        torn = {"data": {"release": base64.b64encode(b"not a release").decode()}, "metadata": metadata}
        await self.client.create({**secret, **torn})


def registered_operator() -> ManagedOperator:
    source = UploadedChart(RELEASE.name)
    return ManagedOperator(OPERATOR_ID, RELEASE.name, NAMESPACE, source, {}, {}, START, "dora")


def registered_version() -> tuple[OperatorVersion, tuple[ChartCrd, ...]]:
    version = OperatorVersion(OPERATOR_ID, "2.0.0", DIGEST, ChartFacts(), START, "dora")
    return version, (ChartCrd(CRD, "crds", definition()),)
