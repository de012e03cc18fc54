"""All controllers: started together, notified of each change, idle while nothing happens."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from kapsa.devcluster.embedded.backend import Backend
from kapsa.devcluster.embedded.controllers.housekeeping.certificates import (
    RequestSigner,
    SigningController,
)
from kapsa.devcluster.embedded.controllers.housekeeping.controllers import HOUSEKEEPING_CONTROLLERS
from kapsa.devcluster.embedded.controllers.housekeeping.garbage_collector import GarbageCollector
from kapsa.devcluster.embedded.controllers.housekeeping.namespaces import NamespaceController
from kapsa.devcluster.embedded.controllers.housekeeping.policy_status import PolicyStatusController
from kapsa.devcluster.embedded.controllers.housekeeping.quotas import QuotaController
from kapsa.devcluster.embedded.controllers.housekeeping.role_aggregation import RoleAggregationController
from kapsa.devcluster.embedded.controllers.housekeeping.service_accounts import (
    CONTROLLER_ACCOUNTS,
    ServiceAccountController,
)
from kapsa.devcluster.embedded.controllers.housekeeping.token_secrets import (
    IssueToken,
    TokenSecretController,
)
from kapsa.devcluster.embedded.controllers.housekeeping.volumes import DEFAULT_CLASS, PROVISIONER
from kapsa.devcluster.embedded.controllers.machinery.events import Recorder
from kapsa.devcluster.embedded.controllers.machinery.executor import Executor
from kapsa.devcluster.embedded.controllers.machinery.kinds import (
    CLAIM,
    LEASE,
    NODE,
    POD,
    SERVICE_ACCOUNT,
    STORAGE_CLASS,
    VOLUME,
    Kind,
    Object,
)
from kapsa.devcluster.embedded.controllers.machinery.owner_controller import OwnerController
from kapsa.devcluster.embedded.controllers.machinery.queue import KeyQueue
from kapsa.devcluster.embedded.controllers.machinery.timestamps import render_micro
from kapsa.devcluster.embedded.controllers.machinery.view import View
from kapsa.devcluster.embedded.controllers.nodes.kubelet import Kubelet
from kapsa.devcluster.embedded.controllers.nodes.logs import read_log
from kapsa.devcluster.embedded.controllers.nodes.node_lifecycle import NodeController
from kapsa.devcluster.embedded.controllers.nodes.node_status import new_node, report
from kapsa.devcluster.embedded.controllers.nodes.scheduler import Scheduler
from kapsa.devcluster.embedded.controllers.workloads.controllers import WORKLOAD_CONTROLLERS
from kapsa.devcluster.embedded.storage.store import Collection, StoreChange
from kapsa.devcluster.embedded.verbs.client import InProcessClient
from kapsa.devcluster.embedded.verbs.commit import furnish
from kapsa.devcluster.wire.exchange import Reply
from kapsa.devcluster.workloads import Workloads

__all__ = ["Controllers"]

Listener = Callable[[Object | None, Object | None], None]


class Controllers:
    """The controllers of an embedded control plane.

    `start` only reads the existing objects and subscribes to changes. Tasks exist only while there is work.
    """

    def __init__(
        self,
        backend: Backend,
        workloads: Workloads | None = None,
        *,
        nodes: int = 1,
        certificate: str = "",
        sign: RequestSigner | None = None,
        issue_token: IssueToken | None = None,
    ) -> None:
        """Create the controllers.

        `workloads` is the test's control over pods and nodes, `nodes` the initial number of nodes,
        `certificate` the cluster's CA in PEM for the ConfigMap of each namespace, and `sign` signs approved
        certificate requests; a cluster without TLS has no CA and signs none. `issue_token` makes the tokens of
        Secrets that hold one; without it they stay empty.
        """
        self.workloads = workloads or Workloads()
        self._backend = backend
        self._nodes = nodes
        self._view = View(backend)
        self._recorder = Recorder(backend)
        self._listeners: dict[tuple[str, str], list[Listener]] = {}
        collector = InProcessClient(backend, manager="kube-controller-manager")
        self._collector = GarbageCollector(backend, collector)
        self._namespaces = NamespaceController(backend, collector)
        self._quotas = QuotaController(backend, collector)
        self._accounts = ServiceAccountController(
            backend, self._view, self._executor("service-account-controller"), certificate
        )
        status_writer = Executor(
            backend, self._recorder, account=PolicyStatusController.name, manager=PolicyStatusController.name
        )
        self._fillers: list[PolicyStatusController | TokenSecretController] = [
            PolicyStatusController(backend, status_writer)
        ]
        """Controllers that fill in fields of single objects."""
        if issue_token is not None:
            agent = self._agent(
                "tokens-controller", "kube-controller-manager", "system:kube-controller-manager"
            )
            self._fillers.append(TokenSecretController(backend, agent, certificate, issue_token))
        self._roles = RoleAggregationController(backend)
        self._scheduler = Scheduler(
            backend,
            self._view,
            self._agent("default-scheduler", "kube-scheduler", "system:kube-scheduler"),
            self.workloads,
        )
        kubelet = self._agent("kubelet", "kubelet", "system:node")
        self._kubelet = Kubelet(backend, self._view, kubelet, self.workloads)
        self._node_controller = NodeController(
            backend, self._view, self._executor("node-controller"), self.workloads
        )
        self._owner_controllers = [
            self._follower(kind(backend, self._view, self._executor(kind.account, kind.component)))
            for kind in (*WORKLOAD_CONTROLLERS, *HOUSEKEEPING_CONTROLLERS)
        ]
        if sign is not None:
            executor = self._executor(SigningController.account)
            signing = SigningController(backend, self._view, executor, sign)
            self._owner_controllers.append(self._follower(signing))
        self._listen(POD, self._scheduler.observe)
        for kind in (CLAIM, VOLUME, STORAGE_CLASS):
            self._listen(kind, self._scheduler.observe_storage)
        self._listen(POD, self._kubelet.observe)
        self._listen(POD, self._node_controller.observe_pod)
        self._listen(NODE, self._node_controller.observe)
        self._listen(NODE, self._observe_node)
        self.workloads.on_change(self._retry_pods_and_nodes)
        self._started = False

    def _executor(self, account: str, component: str = "") -> Executor:
        return Executor(self._backend, self._recorder, account=account, component=component)

    def _agent(self, component: str, manager: str, user: str) -> Executor:
        return Executor(
            self._backend, self._recorder, account=component, component=component, manager=manager, user=user
        )

    def _follower(self, controller: OwnerController) -> OwnerController:
        """Return the controller, notified of the changes that it follows from now on."""
        for watched in (controller.kind, *controller.dependents):
            self._listen(watched, _bound(controller, watched))
        return controller

    def _listen(self, kind: Kind, listener: Listener) -> None:
        self._listeners.setdefault((kind.group, kind.resource), []).append(listener)

    @property
    def queues(self) -> list[KeyQueue]:
        """The queues of all controllers."""
        return [
            self._collector.queue,
            self._namespaces.queue,
            self._quotas.queue,
            self._accounts.queue,
            *(controller.queue for controller in self._fillers),
            self._roles.queue,
            self._scheduler.queue,
            self._kubelet.queue,
            self._node_controller.queue,
            *(controller.queue for controller in self._owner_controllers),
        ]

    async def start(self) -> None:
        """Create the nodes and a storage class, and start all controllers."""
        self._started = True
        self._backend.creates_accounts = True
        self._roles.start()
        self._backend.store.listeners.append(self._follow)
        self._collector.start()
        self._namespaces.start()
        self._quotas.start()
        self._accounts.start()
        for filler in self._fillers:
            filler.start()
        for controller in self._owner_controllers:
            controller.start()
        self._create_initial_objects()
        self._node_controller.start()
        self._scheduler.start()
        self._kubelet.start()

    async def stop(self) -> None:
        """Stop all tasks and timers."""
        if self._started:
            self._backend.store.listeners.remove(self._follow)
            self._backend.creates_accounts = False
            self._started = False
        for queue in self.queues:
            await queue.stop()

    def _create_initial_objects(self) -> None:
        """Create nodes that are ready, a storage class, and the accounts of controllers.

        They are written directly to the store: the write path would load schemas that nothing needs yet.
        """
        now = self._backend.clock.now()
        for number in range(1, self._nodes + 1):
            node = new_node(number)
            self._store(NODE, {**node, "status": report(node, silent_since=None, now=now).status})
            self._store(LEASE, self._lease(node["metadata"]["name"], now))
        metadata = {"name": "standard", "annotations": {DEFAULT_CLASS: "true"}}
        storage = {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate", "allowVolumeExpansion": True}
        self._store(STORAGE_CLASS, {"metadata": metadata, "provisioner": PROVISIONER, **storage})
        for account in CONTROLLER_ACCOUNTS:
            self._store(SERVICE_ACCOUNT, {"metadata": {"name": account, "namespace": "kube-system"}})

    def _lease(self, node: str, now: datetime) -> Object:
        """Return the Lease of a node. It goes with its node."""
        stored = self._backend.store.collection("", "nodes").get(node)
        owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": stored.uid if stored else ""}
        return {
            "metadata": {"name": node, "namespace": "kube-node-lease", "ownerReferences": [owner]},
            "spec": {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": render_micro(now)},
        }

    def _store(self, kind: Kind, obj: Object) -> None:
        info = self._backend.registry.get(kind.group, kind.version, kind.resource)
        furnish(self._backend, info, obj)

    def _follow(self, collection: Collection, change: StoreChange) -> None:
        self._collector.follow(collection, change)
        self._namespaces.follow(collection, change)
        self._quotas.follow(collection, change)
        self._accounts.follow(collection, change)
        for filler in self._fillers:
            filler.follow(collection, change)
        self._roles.follow(collection, change)
        listeners = self._listeners.get(collection.key)
        if listeners is None and not self._view.is_indexed(collection.key):
            return
        new, old = self._view.follow(collection, change)
        for listener in listeners or ():
            listener(new, old)

    def _observe_node(self, new: Object | None, old: Object | None) -> None:
        if new is not None:
            self._scheduler.retry()

    def read_log(self, pod: Object, query: str) -> Reply:
        """Return a pod's log, as its kubelet does."""
        return read_log(pod, query, self.workloads.log_of(pod))

    def _retry_pods_and_nodes(self) -> None:
        if self._started:
            self._node_controller.retry()
            self._kubelet.retry()
            self._scheduler.retry()


def _bound(controller: OwnerController, kind: Kind) -> Listener:
    def listener(new: Object | None, old: Object | None) -> None:
        controller.observe(kind, new, old)

    return listener
