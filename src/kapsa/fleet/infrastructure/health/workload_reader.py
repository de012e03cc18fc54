"""Controllers and Leases of a namespace, read once for all operators in it."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from kapsa.adapters.manifests.health import object_health
from kapsa.fleet.domain.health.leases import LeaseFacts
from kapsa.fleet.domain.health.memory import HealthMemory
from kapsa.fleet.domain.health.workloads import ContainerFacts, PodFacts, WorkloadFacts
from kapsa.fleet.infrastructure.health.release_reader import ReleaseObject
from kapsa.runtime import Client

__all__ = ["WORKLOADS", "NamespaceContent", "lease_facts", "read_namespace", "workload_facts"]

WORKLOADS = ("Deployment", "StatefulSet", "DaemonSet")
_NEW = timedelta(minutes=10)
_REVISION = "deployment.kubernetes.io/revision"
_GENERATION = "deprecated.daemonset.template.generation"
_HASH = "pod-template-hash"


class _Owner(msgspec.Struct, frozen=True):
    uid: str = ""
    controller: bool | None = None


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[_Owner, ...] | None = None
    deletion_timestamp: str | None = None

    def controlled_by(self, uid: str) -> bool:
        return any(owner.uid == uid and owner.controller for owner in self.owner_references or ())

    def label(self, key: str) -> str:
        return (self.labels or {}).get(key, "")


class _State(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _States(msgspec.Struct, frozen=True):
    waiting: _State | None = None
    terminated: _State | None = None


class _Container(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    restart_count: int = 0
    state: _States = _States()
    last_state: _States = _States()


class _Condition(msgspec.Struct, frozen=True):
    type: str = ""
    status: str = ""


class _PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = ""
    start_time: datetime | None = None
    conditions: tuple[_Condition, ...] | None = None
    init_container_statuses: tuple[_Container, ...] | None = None
    container_statuses: tuple[_Container, ...] | None = None


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Metadata
    status: _PodStatus = _PodStatus()


class _ReplicaSet(msgspec.Struct, frozen=True):
    metadata: _Metadata


class _LeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: str | None = None


class _Lease(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: _LeaseSpec = _LeaseSpec()


class NamespaceContent(msgspec.Struct, frozen=True):
    """Everything that the health of the operators in a namespace is judged by."""

    workloads: dict[tuple[str, str], dict[str, Any]]
    """By kind and name."""
    replica_sets: tuple[_ReplicaSet, ...]
    pods: tuple[_Pod, ...]
    leases: tuple[_Lease, ...]


async def read_namespace(client: Client, namespace: str) -> NamespaceContent:
    """Read the controllers, pods and Leases of a namespace, page by page."""
    replica_sets, pods, leases, workloads = await asyncio.gather(
        client.list("apps/v1/ReplicaSet", into=_ReplicaSet, namespace=namespace, metadata_only=True),
        client.list("v1/Pod", into=_Pod, namespace=namespace),
        client.list("coordination.k8s.io/v1/Lease", into=_Lease, namespace=namespace),
        asyncio.gather(*(client.list(f"apps/v1/{kind}", namespace=namespace) for kind in WORKLOADS)),
    )
    named = {
        (kind, str(each["metadata"]["name"])): each
        for kind, listed in zip(WORKLOADS, workloads, strict=True)
        for each in listed.items
    }
    return NamespaceContent(named, tuple(replica_sets.items), tuple(pods.items), tuple(leases.items))


def workload_facts(content: NamespaceContent, each: ReleaseObject, now: datetime) -> WorkloadFacts:
    """Return the facts about a controller of a release."""
    manifest = content.workloads.get((each.kind, each.name))
    if manifest is None:
        return WorkloadFacts(each.kind, each.name, each.namespace, exists=False)
    metadata, status = manifest["metadata"], manifest.get("status") or {}
    health = object_health(manifest)
    return WorkloadFacts(
        each.kind,
        each.name,
        each.namespace,
        desired=_desired(manifest, status),
        observed=int(status.get("observedGeneration") or 0) >= int(metadata.get("generation") or 0),
        failure=health.reason if health.state == "Failed" else "",
        message=health.message,
        pods=tuple(_pod(pod, now) for pod in _current(content, manifest)),
    )


def _desired(manifest: Mapping[str, Any], status: Mapping[str, Any]) -> int:
    if manifest["kind"] == "DaemonSet":
        return int(status.get("desiredNumberScheduled") or 0)
    replicas = (manifest.get("spec") or {}).get("replicas")
    return 1 if replicas is None else int(replicas)


def _current(content: NamespaceContent, manifest: Mapping[str, Any]) -> Sequence[_Pod]:
    """Return the pods that run the current template of a controller and are not on their way out."""
    uid = str(manifest["metadata"].get("uid", ""))
    annotations = manifest["metadata"].get("annotations") or {}
    living = [pod for pod in content.pods if not pod.metadata.deletion_timestamp]
    match manifest["kind"]:
        case "Deployment":
            revision = annotations.get(_REVISION)
            sets = {
                each.metadata.uid
                for each in content.replica_sets
                if each.metadata.controlled_by(uid)
                and (each.metadata.annotations or {}).get(_REVISION) == revision
            }
            return [pod for pod in living if any(pod.metadata.controlled_by(owner) for owner in sets)]
        case "StatefulSet":
            revision = (manifest.get("status") or {}).get("updateRevision")
            owned = [pod for pod in living if pod.metadata.controlled_by(uid)]
            return [pod for pod in owned if pod.metadata.label("controller-revision-hash") == revision]
    generation = annotations.get(_GENERATION, "")
    owned = [pod for pod in living if pod.metadata.controlled_by(uid)]
    return [pod for pod in owned if pod.metadata.label("pod-template-generation") in ("", generation)]


def _pod(pod: _Pod, now: datetime) -> PodFacts:
    status = pod.status
    containers = (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
    ready = any(each.type == "Ready" and each.status == "True" for each in status.conditions or ())
    return PodFacts(
        uid=pod.metadata.uid,
        name=pod.metadata.name,
        ready=ready and status.phase == "Running",
        new=status.start_time is not None and now - status.start_time < _NEW,
        containers=tuple(map(_container, containers)),
    )


def _container(container: _Container) -> ContainerFacts:
    waiting = container.state.waiting or _State()
    ended = container.state.terminated or container.last_state.terminated or _State()
    return ContainerFacts(
        container.name, container.restart_count, waiting.reason, waiting.message, ended.reason
    )


def lease_facts(
    contents: Sequence[NamespaceContent],
    workloads: Sequence[WorkloadFacts],
    memory: HealthMemory,
    now: datetime,
) -> list[LeaseFacts]:
    """Return the Leases that a pod of a release holds, or has held in an earlier reading."""
    pods = [pod.name for workload in workloads for pod in workload.pods]
    facts = []
    for lease in (lease for content in contents for lease in content.leases):
        key = f"{lease.metadata.namespace}/{lease.metadata.name}"
        holder = lease.spec.holder_identity or ""
        current = any(holder == pod or holder.startswith(f"{pod}_") for pod in pods)
        if current or key in memory.leases:
            duration = timedelta(seconds=min(max(lease.spec.lease_duration_seconds or 15, 1), 3600))
            renewed = lease.spec.renew_time or ""
            facts.append(
                LeaseFacts(key, holder, current, renewed, duration, _is_fresh(renewed, duration, now))
            )
    return facts


def _is_fresh(renewed: str, duration: timedelta, now: datetime) -> bool:
    try:
        moment = datetime.fromisoformat(renewed)
        return abs(now - moment) <= duration
    except (ValueError, TypeError):
        return False
