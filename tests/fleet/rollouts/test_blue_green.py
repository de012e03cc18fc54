"""Blue-green on a real cluster: at no event do two controllers run, on the way there and on the way back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kapsa.fleet.settings import FleetSettings
from kapsa.runtime import Client, WatchEvent
from tests.eventually import eventually
from tests.fleet.rollouts.live_fleet import GREEN, NAMESPACE, SECONDS, LiveFleet, live_fleet, sample_chart

pytestmark = pytest.mark.timeout(1200)
_LEASE = "coordination.k8s.io/v1/Lease"


class ControllerRecord:
    """Every event of the controllers' pods and Leases on a cluster."""

    def __init__(self) -> None:
        self._events: list[tuple[int, str, str, dict[str, Any]]] = []

    @contextlib.asynccontextmanager
    async def recording(self, client: Client) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(self._watch(client, kind)) for kind in ("v1/Pod", _LEASE)]
        await asyncio.sleep(0.2)
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, client: Client, kind: str) -> None:
        async for event in client.watch(kind):
            if isinstance(event, WatchEvent):
                version = int(event.object["metadata"]["resourceVersion"])
                self._events.append((version, kind, event.type, event.object))

    def running(self) -> list[set[str]]:
        """Return the namespaces whose controller had a pod or a Lease, after each event in the cluster's order."""
        present: dict[tuple[str, str, str], str] = {}
        states: list[set[str]] = []
        for _, kind, change, manifest in sorted(self._events, key=lambda event: event[0]):
            metadata = manifest["metadata"]
            key = (kind, metadata["namespace"], metadata["name"])
            present.pop(key, None)
            if change != "DELETED" and metadata["namespace"].startswith(NAMESPACE) and _acts(kind, manifest):
                present[key] = metadata["namespace"]
            states.append(set(present.values()))
        return states


def _acts(kind: str, manifest: dict[str, Any]) -> bool:
    if kind == _LEASE:
        return bool(manifest["spec"].get("holderIdentity"))
    return (manifest.get("status") or {}).get("phase") not in ("Succeeded", "Failed")


async def test_two_controllers_never_run_at_a_switch_and_at_the_way_back(settings: FleetSettings) -> None:
    async with live_fleet(settings, {"dev-1": "Dev"}) as fleet:
        await fleet.register_operator(sample_chart("1.0.0"), sample_chart("2.0.0"))
        await fleet.finish(await fleet.deploy("1.0.0", "Direct", forceReason="a first install"))
        await fleet.create_gadgets(3)
        before = await fleet.content()
        record = ControllerRecord()
        async with record.recording(fleet.clients["dev-1"]):
            waiting = {**GREEN, "autoSwitch": False}
            deployment = await fleet.deploy("2.0.0", "BlueGreen", waiting)
            await fleet.await_phase(deployment, "AwaitingApproval", "Validating", "Deploying")
            await _await_switch(fleet, deployment)
            assert await fleet.versions() == {"dev-1": "1.0.0"}
            await fleet.admin.post(f"/deployments/{deployment}/switch", {})
            done = await fleet.finish(deployment)
            assert await fleet.versions() == {"dev-1": "2.0.0"}
            assert 0 <= done["clusters"][0]["handOverGapSeconds"] < 60
            await fleet.admin.post(f"/deployments/{deployment}/rollback", {"reason": "a drill"})
            await _await_rolled_back(fleet, deployment)
            assert await fleet.versions() == {"dev-1": "1.0.0"}
        assert await fleet.content() == before
        states = record.running()
        assert {NAMESPACE} in states
        assert {"gadgets-green"} in states
        assert max(len(state) for state in states) == 1, states


async def _await_switch(fleet: LiveFleet, deployment: str) -> None:
    await eventually(
        lambda: fleet.story(deployment),
        lambda story: "a person to switch" in story,
        "a wait for a person to switch",
        seconds=SECONDS,
    )


async def _await_rolled_back(fleet: LiveFleet, deployment: str) -> None:
    async def phase() -> str:
        return str((await fleet.details(deployment))["deployment"]["phase"])

    await eventually(
        phase, lambda name: name in ("RolledBack", "Failed"), "the end of the rollback", seconds=SECONDS
    )
    assert await phase() == "RolledBack", await fleet.story(deployment)
