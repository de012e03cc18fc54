"""Blue-green on a real cluster: at no event do two controllers run, on the way there and on the way back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from kapsa.fleet.settings import FleetSettings
from kapsa.runtime import Client, WatchEvent
from tests.eventually import eventually
from tests.fleet.rollouts.live_fleet import (
    CHART,
    GREEN,
    NAMESPACE,
    ROLLING,
    SECONDS,
    LiveFleet,
    live_fleet,
    sample_chart,
)

pytestmark = pytest.mark.timeout(1200)
_LEASE = "coordination.k8s.io/v1/Lease"
_RBAC = "rbac.authorization.k8s.io/v1"
_OF_NAMESPACES = ("kube-root-ca.crt", "default")


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
            await asyncio.wait(tasks)
        for task in tasks:
            assert task.cancelled(), f"a watch ended early, and events are missing: {task.exception()!r}"

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


@pytest.mark.long
async def test_two_controllers_never_run_at_a_switch_and_at_the_way_back(
    settings: FleetSettings, engine: str
) -> None:
    async with live_fleet(settings, {"dev-1": "Dev"}, engine=engine) as fleet:
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
            back = (await fleet.details(deployment))["clusters"][0]
            assert back["handOverGapSeconds"] is not None
        assert await fleet.content() == before
        states = record.running()
        assert {NAMESPACE} in states
        assert {"gadgets-green"} in states
        assert max(len(state) for state in states) == 1, states


@pytest.mark.long
async def test_blue_goes_after_a_day_and_nothing_of_green_is_touched_also_by_a_manager_that_was_restarted(
    settings: FleetSettings,
) -> None:
    async with live_fleet(settings, {"dev-1": "Dev"}) as fleet:
        client = fleet.clients["dev-1"]
        await fleet.register_operator(sample_chart("1.0.0"), sample_chart("2.0.0"))
        await fleet.finish(await fleet.deploy("1.0.0", "Direct"))
        await fleet.create_gadgets(3)
        deployment = await fleet.deploy("2.0.0", "BlueGreen", GREEN)
        await fleet.finish(deployment)
        before, green = await fleet.content(), await written(client, "gadgets-green")
        await fleet.restart()
        switched = await fleet.server.services.database.now()
        await pass_time_until(fleet, switched + timedelta(hours=23, minutes=50))
        assert await written(client, NAMESPACE) != {}
        await pass_time_until(fleet, switched + timedelta(hours=24, minutes=10))
        await eventually(
            lambda: written(client, NAMESPACE), lambda seen: not seen, "no blue", seconds=SECONDS
        )
        assert await written(client, "gadgets-green") == green
        assert (await fleet.versions(), await fleet.content()) == ({"dev-1": "2.0.0"}, before)
        status, answer = await fleet.admin.call(
            "POST", f"/deployments/{deployment}/rollback", {"reason": "too late"}
        )
        assert (status, answer["detail"]) == (
            409,
            "the release that ran before on dev-1 has been removed: deploy version 1.0.0 instead",
        )


@pytest.mark.long
async def test_after_a_switch_another_number_of_replicas_meets_no_conflict_and_a_rollback_leaves_green_running(
    settings: FleetSettings, engine: str
) -> None:
    async with live_fleet(settings, {"dev-1": "Dev"}, engine=engine) as fleet:
        await fleet.register_operator(*(sample_chart(f"{number}.0.0") for number in (1, 2, 3)))
        await fleet.finish(await fleet.deploy("1.0.0", "Direct"))
        await fleet.finish(await fleet.deploy("2.0.0", "BlueGreen", GREEN))
        third = await fleet.deploy("3.0.0", "Rolling", ROLLING, values={"replicas": 2})
        await fleet.finish(third)
        (plan,) = (await fleet.admin.get(f"/deployments/{third}/plan"))["plan"]["clusters"]
        assert plan["conflicts"] == []
        assert await replicas(fleet.clients["dev-1"]) == {"gadgets": 0, "gadgets-green": 2}
        await fleet.admin.post(f"/deployments/{third}/rollback", {"reason": "a drill"})
        await _await_rolled_back(fleet, third)
        # The revision that blue-green had stored has no replicas: it was installed at rest.
        assert await replicas(fleet.clients["dev-1"]) == {"gadgets": 0, "gadgets-green": 1}
        assert await fleet.versions() == {"dev-1": "2.0.0"}


async def replicas(client: Client) -> dict[str, int]:
    """Return the replicas of the controller in each namespace."""
    listed = await client.list("apps/v1/Deployment", label_selector={"app.kubernetes.io/name": CHART})
    return {each["metadata"]["namespace"]: each["spec"]["replicas"] for each in listed.items}


async def written(client: Client, namespace: str) -> dict[str, Any]:
    """Return what changes with each write to an object of the release in a namespace; its status does not count."""
    objects = {}
    for kind in (
        "v1/ConfigMap",
        "v1/Secret",
        "v1/ServiceAccount",
        f"{_RBAC}/ClusterRole",
        "apps/v1/Deployment",
    ):
        for each in (await client.list(kind)).items:
            metadata = each["metadata"]
            release = (metadata.get("annotations") or {}).get("meta.helm.sh/release-namespace")
            if namespace in (release, metadata.get("namespace")) and metadata["name"] not in _OF_NAMESPACES:
                version = metadata["generation" if "status" in each else "resourceVersion"]
                objects[f"{kind} {metadata['name']}"] = (metadata["uid"], version)
    return objects


async def pass_time_until(fleet: LiveFleet, moment: datetime) -> None:
    """Set the time of the manager, and wait until it has worked at that time."""
    fleet.server.services.database.set_clock(moment)
    expected = moment.strftime("%Y-%m-%dT%H:%M")

    async def checked() -> str:
        health = await fleet.admin.get(f"/operators/{CHART}/health")
        return str(health["clusters"][0]["lastChecked"])

    await eventually(checked, lambda seen: seen.startswith(expected), "a check at that time", seconds=SECONDS)


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
