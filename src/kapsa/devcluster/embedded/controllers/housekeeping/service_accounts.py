"""The objects that each namespace has: the ServiceAccount `default` and the ConfigMap with the root CA."""

from __future__ import annotations

from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.controllers.machinery.executor import Executor
from kapsa.devcluster.embedded.controllers.machinery.kinds import (
    CONFIG_MAP,
    NAMESPACE,
    SERVICE_ACCOUNT,
    Kind,
    Object,
)
from kapsa.devcluster.embedded.controllers.machinery.plan import Create, WritePlan
from kapsa.devcluster.embedded.controllers.machinery.queue import Key, KeyQueue
from kapsa.devcluster.embedded.controllers.machinery.view import View
from kapsa.devcluster.embedded.storage.store import Collection, StoreChange

ACCOUNT = "default"
CERTIFICATE = "kube-root-ca.crt"
CONTROLLER_ACCOUNTS = (
    "certificate-controller",
    "clusterrole-aggregation-controller",
    "cronjob-controller",
    "daemon-set-controller",
    "deployment-controller",
    "device-taint-eviction-controller",
    "disruption-controller",
    "endpoint-controller",
    "endpointslice-controller",
    "endpointslicemirroring-controller",
    "ephemeral-volume-controller",
    "generic-garbage-collector",
    "horizontal-pod-autoscaler",
    "job-controller",
    "legacy-service-account-token-cleaner",
    "namespace-controller",
    "node-controller",
    "persistent-volume-binder",
    "pod-garbage-collector",
    "pv-protection-controller",
    "pvc-protection-controller",
    "replicaset-controller",
    "replication-controller",
    "resource-claim-controller",
    "resourcequota-controller",
    "root-ca-cert-publisher",
    "service-account-controller",
    "service-cidrs-controller",
    "statefulset-controller",
    "ttl-after-finished-controller",
    "ttl-controller",
    "validatingadmissionpolicy-status-controller",
    "volumeattributesclass-protection-controller",
)
"""The accounts that kube-controller-manager has in kube-system, one for each of its controllers."""
_DESCRIPTION = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the "
    "internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of "
    "Kubernetes clusters."
)


def plan(namespace: Object, *, has_account: bool, has_certificate: bool, certificate: str) -> WritePlan:
    """Plan to create the objects that a namespace lacks."""
    plan = WritePlan()
    name = namespace["metadata"]["name"]
    if (namespace.get("status") or {}).get("phase") == "Terminating":
        return plan
    if not has_account:
        account = {"metadata": {"name": ACCOUNT, "namespace": name}}
        plan.do(Create(SERVICE_ACCOUNT, account, exists_ok=True))
    if not has_certificate:
        metadata = {
            "name": CERTIFICATE,
            "namespace": name,
            "annotations": {"kubernetes.io/description": _DESCRIPTION},
        }
        config_map = {"metadata": metadata, "data": {"ca.crt": certificate}}
        plan.do(Create(CONFIG_MAP, config_map, exists_ok=True))
    return plan


class ServiceAccountController:
    """Controller that creates both objects, and creates them again when they are deleted."""

    name = "serviceaccount-controller"

    def __init__(self, backend: Backend, view: View, executor: Executor, certificate: str = "") -> None:
        self._backend = backend
        self._view = view
        self._executor = executor
        self._certificate = certificate
        self.queue = KeyQueue(self.name, self._process)

    def start(self) -> None:
        """Enqueue all namespaces."""
        for stored in self._backend.store.collection("", "namespaces").current():
            self.queue.add(("", stored.name))

    def follow(self, collection: Collection, change: StoreChange) -> None:
        """Enqueue a new namespace, or the namespace of a deleted object."""
        if collection.key == ("", "namespaces"):
            if change.type == "ADDED":
                self.queue.add(("", change.object.name))
        elif change.type == "DELETED" and (
            (collection.key == ("", "serviceaccounts") and change.object.name == ACCOUNT)
            or (collection.key == ("", "configmaps") and change.object.name == CERTIFICATE)
        ):
            self.queue.add(("", change.object.namespace))

    async def _process(self, key: Key) -> None:
        namespace = self._view.get(NAMESPACE, "", key[1])
        if namespace is None:
            return
        await self._executor.run(
            plan(
                namespace,
                has_account=self._has(SERVICE_ACCOUNT, key[1], ACCOUNT),
                has_certificate=self._has(CONFIG_MAP, key[1], CERTIFICATE),
                certificate=self._certificate,
            )
        )

    def _has(self, kind: Kind, namespace: str, name: str) -> bool:
        return self._view.get(kind, namespace, name) is not None
