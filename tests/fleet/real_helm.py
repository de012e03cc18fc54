"""The real helm behind the gate, on a cluster of the test: releases of small charts, and what it leaves behind."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import signal
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kapsa.adapters.testing.chart_server import pack_chart
from kapsa.devcluster import DevCluster
from kapsa.fleet.domain.errors import UnknownObject
from kapsa.fleet.domain.rollout.deployments import ConflictPolicy
from kapsa.fleet.domain.rollout.releases import ReleaseIntent, ReleaseRef
from kapsa.fleet.infrastructure.clusters.gateway import untrusted_client
from kapsa.fleet.infrastructure.helm.gated_helm import GatedHelm, HelmBounds
from kapsa.fleet.orchestrator.ports.helm import HelmInterrupted, HelmReleases, UpgradeRequest
from kapsa.fleet.orchestrator.ports.leases import LeaseGuard
from kapsa.runtime import Client, Response, Transport
from tests.fleet.audit_recorder import AuditRecorder
from tests.fleet.helm_contract import LABELS

__all__ = [
    "CLUSTER",
    "ApiWrite",
    "RealHelm",
    "config_map",
    "failure",
    "helm_processes",
    "hook",
    "kill_helm",
    "lease",
    "manifest_of",
    "real_helm",
]

CLUSTER = uuid.UUID("00000000-0000-4000-8000-00000000c1a5")
_numbers = itertools.count(1)


def lease(seconds: float = 600.0) -> LeaseGuard:
    """Return the guard of a lease that this process holds."""
    return LeaseGuard(time.monotonic() + seconds, time.monotonic)


def config_map(name: str, namespace: str, **data: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def hook(name: str, namespace: str, events: str, **data: str) -> dict[str, Any]:
    """Return a hook that is done as soon as it exists."""
    made = config_map(name, namespace, **data)
    return {**made, "metadata": {**made["metadata"], "annotations": {"helm.sh/hook": events}}}


def manifest_of(*objects: Mapping[str, Any]) -> bytes:
    return "".join(f"---\n{json.dumps(each)}\n" for each in objects).encode()


def failure(code: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return a failure as an API server answers it."""
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}
    return Response(
        code, {"content-type": "application/json", **(headers or {})}, msgspec.json.encode(status)
    )


class ApiWrite(msgspec.Struct, frozen=True):
    """A write on its way to the API server, or just answered."""

    number: int
    """Counted from 1 by the transport."""
    method: str
    path: str
    body: bytes
    answered: bool

    @property
    def to_history(self) -> bool:
        return "/secrets" in self.path


class TamperedTransport:
    """A transport that shows a test each write before it is sent, and after its answer."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.count = 0
        self.tamper: Callable[[ApiWrite], Awaitable[Any]] | None = None
        """Called for each write. What it returns before the write is the answer in place of the server's."""

    async def request(self, method: str, path: str, **options: Any) -> Response:
        if method == "GET" or self.tamper is None:
            return await self.inner.request(method, path, **options)
        self.count += 1
        write = ApiWrite(self.count, method, path, options.get("body", b""), False)
        early = await self.tamper(write)
        if early is not None:
            return early
        response = await self.inner.request(method, path, **options)
        if self.tamper is not None:
            await self.tamper(msgspec.structs.replace(write, answered=True))
        return response

    def stream(self, method: str, path: str, **options: Any) -> Any:
        return self.inner.stream(method, path, **options)

    async def close(self) -> None:
        await self.inner.close()


def helm_processes() -> list[int]:
    """Return the helm that this process has started, but none that has ended and was not waited for."""
    return [pid for pid in _children() if _running_name(pid) == "helm"]


def _running_name(pid: int) -> str:
    with contextlib.suppress(OSError):
        name, _, fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
        return "" if fields.split()[0] == "Z" else name.partition("(")[2]
    return ""


def kill_helm() -> int:
    """Kill the helm that this process has started. Return how many there were."""
    running = helm_processes()
    for pid in running:
        os.kill(pid, signal.SIGKILL)
    return len(running)


def _children() -> list[int]:
    tasks = Path("/proc/self/task").glob("*/children")
    return [int(pid) for each in tasks for pid in each.read_text().split()]


class RealHelm:
    """The adapter on one cluster, with charts that it can install."""

    def __init__(self, client: Client, bounds: HelmBounds | None = None, namespace: str = "") -> None:
        self.client = client
        self.transport = TamperedTransport(client.transport)
        client._dispatcher.transport = self.transport
        self.audit = AuditRecorder()
        self.archives: dict[str, bytes] = {}
        self.connected: Callable[[], Client] = lambda: client
        self.namespace = namespace or f"helm-{next(_numbers)}-{uuid.uuid4().hex[:5]}"
        self.helm = GatedHelm(self, self, self.connect, self.audit, bounds)  # type: ignore[arg-type]
        self.releases: HelmReleases = self.helm
        self.cluster_id = CLUSTER
        self.contract_release = self.release()

    # The contract.

    def contract_request(self, *, broken: bool = False) -> UpgradeRequest:
        """Return a request; the broken one has a Service without ports."""
        service = {**config_map("broken", self.namespace), "kind": "Service", "spec": {"type": "NodePort"}}
        service.pop("data")
        objects = (config_map("app", self.namespace), *((service,) if broken else ()))
        return self.request(*objects, labels=LABELS)

    async def killed(self, act: Callable[[], Awaitable[Any]]) -> None:
        async def kill(write: ApiWrite) -> None:
            if write.to_history and write.answered:
                self.transport.tamper = None
                assert kill_helm() == 1

        self.transport.tamper = kill
        with pytest.raises(HelmInterrupted):
            await act()

    async def rejected(self, act: Callable[[], Awaitable[Any]]) -> None:
        await self._answered(failure(403, "denied"), act)

    async def busy(self, status: int, act: Callable[[], Awaitable[Any]]) -> None:
        # Longer than the gate waits: it hands the run back at once.
        await self._answered(failure(status, "too many requests", {"retry-after": "120"}), act)

    async def _answered(self, response: Response, act: Callable[[], Awaitable[Any]]) -> None:
        async def answer(write: ApiWrite) -> Response | None:
            return None if write.to_history or write.answered else response

        self.transport.tamper = answer
        try:
            await act()
        finally:
            self.transport.tamper = None

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
        if cluster_id != self.cluster_id:
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
