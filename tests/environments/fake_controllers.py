"""Fakes of other controllers in a cluster: cert-manager, and a kubelet whose builds fail."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from kapsa.runtime import AlreadyExists, Bookmark, Client, NotFound, WatchEvent

__all__ = ["CertManager", "UnscheduledPods", "certificate_definition", "closed_nodes"]

INGRESS = "networking.k8s.io/v1/Ingress"
CERTIFICATE = "cert-manager.io/v1/Certificate"


class UnscheduledPods:
    """The pods of builds on the real engine. Its kubelet completes every pod, so failing ones get no node."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    async def succeed(self, job: str) -> None:
        """Do nothing: the kubelet completes the pod."""

    async def fail(self, job: str, *, code: int, log: str) -> None:
        """Write the status of a failed container to the pod, as a kubelet does. There is no log."""
        labels = {"batch.kubernetes.io/job-name": job}
        async for event in self._client.watch(
            "v1/Pod", namespace=self._namespace, label_selector=labels, resource_version="0"
        ):
            if not isinstance(event, Bookmark) and event.type != "DELETED":
                await self._end(event.object, code)
                return

    async def _end(self, pod: dict[str, Any], code: int) -> None:
        assert not pod["spec"].get("nodeName"), "a build that is to fail is pushed inside of `closed_nodes`"
        ended = {"terminated": {"exitCode": code, "reason": "Error"}}
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
        await self._client.patch(
            "v1/Pod", pod["metadata"]["name"], status, namespace=self._namespace, subresource="status"
        )


@contextlib.asynccontextmanager
async def closed_nodes(client: Client) -> AsyncIterator[None]:
    """Cordon all nodes in this block."""
    await _close(client, True)
    try:
        yield
    finally:
        await _close(client, False)


async def _close(client: Client, closed: bool) -> None:
    for node in (await client.list("v1/Node")).items:
        await client.patch("v1/Node", node["metadata"]["name"], {"spec": {"unschedulable": closed}})


class CertManager:
    """A fake cert-manager: creates a Certificate for each Ingress of some domains that names an issuer."""

    def __init__(self, client: Client, *domains: str) -> None:
        self._client = client
        self._domains = domains
        self.issued: list[str] = []
        """The hosts with a certificate, in order."""

    async def work(self) -> None:
        """Run until cancelled."""
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
    """Return the CustomResourceDefinition of cert-manager's Certificate, without its schema."""
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
