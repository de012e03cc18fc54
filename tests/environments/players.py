"""Those who work in a cluster beside the operator, played by the test: builders that push images, cert-manager, a broken kubelet."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from typing import Any

from kapsa.devcluster import DevCluster
from kapsa.environments.testing.registry_server import RegistryServer
from kapsa.runtime.client import Client
from kapsa.runtime.errors import AlreadyExists, Conflict, NotFound
from kapsa.runtime.watch import WatchEvent

__all__ = ["Builder", "CertManager", "certificate_definition"]

JOB = "batch/v1/Job"
INGRESS = "networking.k8s.io/v1/Ingress"
CERTIFICATE = "cert-manager.io/v1/Certificate"


class Builder:
    """What build Jobs run: each pushes the image that its arguments name, unless the next one is to fail."""

    def __init__(self, cluster: DevCluster, client: Client, registry: RegistryServer, namespace: str) -> None:
        self._cluster = cluster
        self._client = client
        self._registry = registry
        self._namespace = namespace
        self._log: str | None = None
        self.pushed: dict[str, str] = {}
        """The digests of what was pushed, by tag."""
        self.completed: list[str] = []
        """The Jobs that came to their end, in order."""
        self.failed: list[str] = []

    @contextlib.asynccontextmanager
    async def failing(self, log: str) -> AsyncIterator[None]:
        """Every build fails in this block, with this at the end of its log."""
        self._log = log
        if self._cluster.engine == "embedded":
            workloads = self._cluster.workloads
            workloads.crash(f"{self._namespace}/*", exit_code=1)
            workloads.logs(f"{self._namespace}/*", log)
        else:
            # Where no node takes the pod, nobody but this test says what becomes of it.
            await self._cordon(True)
        try:
            yield
        finally:
            self._log = None
            if self._cluster.engine == "embedded":
                self._cluster.workloads.heal()
            else:
                await self._cordon(False)

    async def work(self) -> None:
        """Go on until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_jobs())
            if self._cluster.engine == "real":
                group.create_task(self._follow_pods())

    async def _follow_jobs(self) -> None:
        async for event in self._client.watch(JOB, namespace=self._namespace):
            if not isinstance(event, WatchEvent):
                continue
            job = event.object
            name = job["metadata"]["name"]
            if event.type == "ADDED" and self._log is None:
                self._push(job)
            ended = {
                each["type"]
                for each in job.get("status", {}).get("conditions", ())
                if each["status"] == "True"
            }
            if "Complete" in ended and name not in self.completed:
                self.completed.append(name)
            if "Failed" in ended and name not in self.failed:
                self.failed.append(name)

    def _push(self, job: dict[str, Any]) -> None:
        (container,) = job["spec"]["template"]["spec"]["containers"]
        (output,) = [each for each in container["args"] if each.startswith("--output=")]
        found = re.search(r"name=[^/]+/([^:,]+):([^,]+)", output)
        assert found is not None, output
        repository, tag = found.groups()
        self.pushed[tag] = self._registry.push(repository, tag, tag.encode())

    async def _follow_pods(self) -> None:
        """End the pods that no node takes, as a kubelet whose container fails does."""
        async for event in self._client.watch("v1/Pod", namespace=self._namespace):
            if not isinstance(event, WatchEvent) or event.type == "DELETED" or self._log is None:
                continue
            pod = event.object
            if pod["status"].get("phase") == "Pending" and not pod["spec"].get("nodeName"):
                ended = {"terminated": {"exitCode": 1, "reason": "Error"}}
                statuses = [
                    {
                        "name": each["name"],
                        "image": each["image"],
                        "imageID": "",
                        "ready": False,
                        "restartCount": 0,
                        "state": ended,
                    }
                    for each in pod["spec"]["containers"]
                ]
                status = {"status": {"phase": "Failed", "containerStatuses": statuses}}
                with contextlib.suppress(NotFound, Conflict):
                    await self._client.patch(
                        "v1/Pod",
                        pod["metadata"]["name"],
                        status,
                        namespace=self._namespace,
                        subresource="status",
                    )

    async def _cordon(self, closed: bool) -> None:
        for node in (await self._client.list("v1/Node")).items:
            change = {"spec": {"unschedulable": closed}}
            await self._client.patch("v1/Node", node["metadata"]["name"], change)


class CertManager:
    """Makes a Certificate for every host of some domains whose Ingress names an issuer."""

    def __init__(self, client: Client, *domains: str) -> None:
        self._client = client
        self._domains = domains
        self.issued: list[str] = []
        """The hosts that have a certificate, in order."""

    async def work(self) -> None:
        """Go on until cancelled."""
        async for event in self._client.watch(INGRESS):
            if isinstance(event, WatchEvent) and event.type != "DELETED":
                ingress = event.object
                if "cert-manager.io/cluster-issuer" in ingress["metadata"].get("annotations", {}):
                    await self._issue(ingress)

    async def _issue(self, ingress: dict[str, Any]) -> None:
        for entry in ingress["spec"].get("tls", ()):
            if any(host.partition(".")[2] not in self._domains for host in entry["hosts"]):
                continue  # another test's
            metadata = {"name": entry["secretName"], "namespace": ingress["metadata"]["namespace"]}
            certificate = {
                "apiVersion": "cert-manager.io/v1",
                "kind": "Certificate",
                "metadata": metadata,
                "spec": {"secretName": entry["secretName"], "dnsNames": entry["hosts"]},
            }
            with contextlib.suppress(AlreadyExists, NotFound):
                await self._client.create(certificate)
                self.issued += entry["hosts"]
                ready = {"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Issued"}]}}
                await self._client.patch(
                    CERTIFICATE,
                    entry["secretName"],
                    ready,
                    namespace=metadata["namespace"],
                    subresource="status",
                )


def certificate_definition() -> dict[str, Any]:
    """The CustomResourceDefinition of cert-manager's Certificate, without its schema."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "certificates.cert-manager.io"},
        "spec": {
            "group": "cert-manager.io",
            "scope": "Namespaced",
            "names": {"kind": "Certificate", "plural": "certificates", "singular": "certificate"},
            "versions": [version],
        },
    }
