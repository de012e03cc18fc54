"""The switch of webhooks and conversions from one release to another."""

from collections.abc import Callable, Mapping
from typing import Any

from kapsa.fleet.domain.rollout.releases import DEPLOYMENT_LABEL, ReleaseRef
from kapsa.fleet.infrastructure.operations.crds.crd_changes import detach, patch_crd
from kapsa.fleet.infrastructure.operations.crds.crd_plan import CRD, plan_switch
from kapsa.fleet.infrastructure.operations.crds.crd_record import CrdHandover, read_record
from kapsa.fleet.infrastructure.operations.handover.idle_marks import active_webhooks, idle_webhooks
from kapsa.fleet.infrastructure.operations.handover.webhook_proof import prove_conversion, prove_webhooks
from kapsa.fleet.infrastructure.operations.release_objects import (
    ReleaseObjects,
    kind_of,
    owned_services,
    require_owned,
)
from kapsa.runtime import Client, Conflict, NotFound

__all__ = ["switch_webhooks"]

_ATTEMPTS = 5
Webhooks = list[dict[str, Any]]


async def switch_webhooks(
    client: Client, incoming: ReleaseObjects, outgoing: ReleaseObjects | None, chart: str
) -> None:
    """Give conversions and webhooks to a release, and prove that they work.

    The webhooks of the incoming release match before those of the outgoing one stop, so that no resource is ever
    written unchecked. Raises `ClusterNotReady` as long as the proof fails.
    """
    converted = await _switch_conversions(client, incoming.release)
    if outgoing is not None:
        await _detach(client, incoming, outgoing, converted, chart)
    for config in incoming.webhook_configurations():
        await _change(client, incoming.release, config, active_webhooks)
    if outgoing is not None:
        for config in outgoing.webhook_configurations():
            await _change(client, outgoing.release, config, idle_webhooks)
    await prove_webhooks(client, incoming)
    for name in converted:
        await prove_conversion(client, await client.get(CRD, name))


async def _switch_conversions(client: Client, release: ReleaseRef) -> list[str]:
    """Give the CRDs of a release its conversion, service and CA in one write. Return the names of the CRDs."""
    names: list[str] = []
    async for page in client.pages(CRD, limit=500, metadata_only=True):
        for each in page.items:
            record = read_record(each)
            if record is not None and record.state_of(release) is not None:
                names.append(str(each["metadata"]["name"]))
    for name in names:
        await patch_crd(client, name, lambda live: plan_switch(live, release))
    return names


async def _detach(
    client: Client, incoming: ReleaseObjects, outgoing: ReleaseObjects, converted: list[str], chart: str
) -> None:
    """End the conversions that only the outgoing release serves: its Services go when it is retired."""
    services = await owned_services(client, outgoing)
    deployment = incoming.record.labels.get(DEPLOYMENT_LABEL, "")
    change = CrdHandover(outgoing.release, incoming.release, chart, deployment)
    await detach(client, services, set(converted), change)


async def _change(
    client: Client, release: ReleaseRef, config: Mapping[str, Any], change: Callable[[Webhooks], Webhooks]
) -> None:
    """Change the webhooks of a live configuration, whose CA another program may have injected."""
    kind, name = kind_of(config), str(config["metadata"]["name"])
    for attempt in range(_ATTEMPTS):
        try:
            live = await client.get(kind, name)
        except NotFound:
            return
        require_owned(live, release)
        webhooks = live.get("webhooks") or []
        changed = change(webhooks)
        if changed == webhooks:
            return
        patch = {"metadata": {"resourceVersion": live["metadata"]["resourceVersion"]}, "webhooks": changed}
        try:
            await client.patch(kind, name, patch)
        except Conflict:
            if attempt == _ATTEMPTS - 1:
                raise
        else:
            return
