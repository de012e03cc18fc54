"""The controllers of a release: scaled to zero, scaled up again, and what still runs of them."""

import functools
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kapsa.fleet.infrastructure.operations.handover.idle_marks import REPLICAS, desired_replicas
from kapsa.fleet.infrastructure.operations.leased_clients import FIELD_MANAGER
from kapsa.fleet.infrastructure.operations.release_objects import (
    ReleaseObjects,
    group_kind,
    kind_of,
    require_owned,
)
from kapsa.fleet.orchestrator.ports.cluster_operations import ClusterRefused, ReleaseActivity
from kapsa.runtime import Client, Conflict, NotFound

__all__ = ["LeaseWatch", "release_activity", "scale_down", "scale_up", "selector_of", "unstoppable"]

_ATTEMPTS = 5
_LEASE = "coordination.k8s.io/v1/Lease"
_NODE_LEASES = "kube-node-lease"
_ENDED = ("Succeeded", "Failed")
_DEFAULT_LEASE_SECONDS = 15
_MOST_LEASES = 10_000
"""Leases that are remembered, of all clusters together."""

Manifest = dict[str, Any]


def unstoppable(release: ReleaseObjects) -> str:
    """Return why the controllers of a release cannot be stopped; empty if they can."""
    names = [
        each["metadata"]["name"] for each in release.objects if group_kind(each) == ("apps", "DaemonSet")
    ]
    if not names:
        return ""
    return f"DaemonSet {names[0]} of {release.release} cannot be scaled to zero: use Canary or Rolling"


async def scale_down(client: Client, release: ReleaseObjects) -> None:
    """Scale the controllers of a release to zero, and remember how many replicas there were.

    Raises `ClusterRefused` if one of them cannot be scaled.
    """
    if reason := unstoppable(release):
        raise ClusterRefused(reason)
    for controller in release.controllers():
        await _scale(client, release, controller, _stopped)


async def scale_up(client: Client, release: ReleaseObjects) -> None:
    """Scale the controllers of a release that are at zero to the number that they had, or their manifest has."""
    for controller in release.controllers():
        await _scale(client, release, controller, functools.partial(_started, controller))


def _stopped(live: Manifest) -> Manifest | None:
    replicas = live["spec"].get("replicas", 1)
    if not replicas:
        return None
    return {"metadata": {"annotations": {REPLICAS: str(replicas)}}, "spec": {"replicas": 0}}


def _started(own: Mapping[str, Any], live: Manifest) -> Manifest | None:
    if live["spec"].get("replicas", 1):
        return None
    remembered = REPLICAS in (live["metadata"].get("annotations") or {})
    replicas = desired_replicas(live if remembered else own)
    if not replicas:
        return None
    return {"metadata": {"annotations": {REPLICAS: None}}, "spec": {"replicas": replicas}}


async def _scale(
    client: Client,
    release: ReleaseObjects,
    controller: Mapping[str, Any],
    change: Callable[[Manifest], Manifest | None],
) -> None:
    """Patch a controller, planned from its present state, and leave its fields to Helm."""
    kind, name = kind_of(controller), str(controller["metadata"]["name"])
    for attempt in range(_ATTEMPTS):
        try:
            live = await client.get(kind, name, namespace=release.namespace_of(controller))
            require_owned(live, release.release)
            await _patch(client, kind, live, change(live))
        except NotFound:
            return  # the chart has it, and somebody deleted it: nothing of it runs
        except Conflict:
            if attempt == _ATTEMPTS - 1:
                raise
        else:
            return


async def _patch(client: Client, kind: str, live: Manifest, patch: Manifest | None) -> None:
    metadata = live["metadata"]
    if patch is not None:
        patch["metadata"]["resourceVersion"] = metadata["resourceVersion"]
        live = await client.patch(kind, metadata["name"], patch, namespace=metadata["namespace"])
    await _disown(client, kind, live)


async def _disown(client: Client, kind: str, live: Manifest) -> None:
    """Give up the ownership of fields that we have set, so that the next Helm upgrade meets no conflict."""
    metadata = live["metadata"]
    entries = metadata.get("managedFields") or []
    others = [each for each in entries if each.get("manager") != FIELD_MANAGER]
    if len(others) == len(entries) or not others:
        return
    patch = {"metadata": {"resourceVersion": metadata["resourceVersion"], "managedFields": others}}
    await client.patch(kind, metadata["name"], patch, namespace=metadata["namespace"])


async def release_activity(
    client: Client, cluster_id: uuid.UUID, release: ReleaseObjects, leases: "LeaseWatch"
) -> ReleaseActivity:
    """Return the pods of a release that have not ended, and the holder of its leader election Lease."""
    pods = 0
    for controller in release.controllers():
        pods += await _running_pods(client, release, controller)
    names = [str(each["metadata"]["name"]) for each in release.controllers()]
    return ReleaseActivity(pods, await leases.holder(client, cluster_id, names))


async def _running_pods(client: Client, release: ReleaseObjects, controller: Mapping[str, Any]) -> int:
    namespace, selector = release.namespace_of(controller), selector_of(controller)
    if not selector:
        return 0
    count = 0
    async for page in client.pages("v1/Pod", namespace=namespace, label_selector=selector, limit=500):
        count += sum((pod.get("status") or {}).get("phase") not in _ENDED for pod in page.items)
    return count


def selector_of(controller: Mapping[str, Any]) -> str:
    """Return the label selector of a controller as a query has it."""
    selector = (controller.get("spec") or {}).get("selector") or {}
    labels = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    return ",".join([*labels, *_expressions(selector.get("matchExpressions") or ())])


def _expressions(expressions: Any) -> Iterator[str]:
    for each in expressions:
        key, operator, values = each["key"], each["operator"], ",".join(each.get("values") or ())
        match operator:
            case "Exists":
                yield str(key)
            case "DoesNotExist":
                yield f"!{key}"
            case "In" | "NotIn":
                yield f"{key} {operator.lower()} ({values})"


class LeaseWatch:
    """The leader election Leases of controllers, and for how long each has not been renewed.

    A controller that was killed leaves its Lease behind. It counts as released once it has not changed for its own
    duration on this process's clock: the clocks of clusters are not compared.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._seen: dict[tuple[uuid.UUID, str, str], tuple[str, float]] = {}

    async def holder(self, client: Client, cluster_id: uuid.UUID, controllers: list[str]) -> str:
        """Return the pod of one of these controllers that holds a Lease; empty if none does."""
        holders = ""
        selector = f"metadata.namespace!={_NODE_LEASES}"
        async for page in client.pages(_LEASE, field_selector=selector, limit=500):
            for lease in page.items:
                holder = str((lease.get("spec") or {}).get("holderIdentity") or "")
                ours = any(holder.startswith(f"{name}-") for name in controllers)
                if ours and self._is_held(cluster_id, lease):
                    holders = holders or holder
        return holders

    def _is_held(self, cluster_id: uuid.UUID, lease: Mapping[str, Any]) -> bool:
        metadata = lease["metadata"]
        key = (cluster_id, str(metadata["namespace"]), str(metadata["name"]))
        now, version = self._monotonic(), str(metadata["resourceVersion"])
        seen, since = self._seen.pop(key, ("", now))
        if seen != version:
            since = now
        if len(self._seen) >= _MOST_LEASES:
            self._seen.pop(next(iter(self._seen)))
        self._seen[key] = (version, since)
        duration = (lease.get("spec") or {}).get("leaseDurationSeconds") or _DEFAULT_LEASE_SECONDS
        return now - since <= min(max(int(duration), 1), 300)
