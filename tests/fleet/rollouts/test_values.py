"""Values per environment and cluster: what each API server receives, and what the plan shows of it."""

from __future__ import annotations

from typing import Any

import pytest

from kapsa.fleet.settings import FleetSettings
from tests.fleet.rollouts.live_fleet import CHART, NAMESPACE, LiveFleet, live_fleet, sample_chart

CLUSTERS = {"dev-1": "Dev", "dev-2": "Dev", "staging-1": "Staging"}

pytestmark = [pytest.mark.timeout(1200), pytest.mark.long]


async def received(fleet: LiveFleet) -> dict[str, tuple[str, list[str], int]]:
    """Return the settings, the arguments and the replicas that the API server of each cluster has."""
    result: dict[str, tuple[str, list[str], int]] = {}
    for name, client in fleet.clients.items():
        settings = await client.get("v1/ConfigMap", CHART, namespace=NAMESPACE)
        controller = await client.get("apps/v1/Deployment", CHART, namespace=NAMESPACE)
        (container,) = controller["spec"]["template"]["spec"]["containers"]
        result[name] = settings["data"]["logLevel"], container["args"], controller["spec"]["replicas"]
    return result


async def planned(fleet: LiveFleet, deployment: str) -> dict[str, Any]:
    plan = await fleet.admin.get(f"/deployments/{deployment}/plan")
    return {each["clusterName"]: each for each in plan["plan"]["clusters"]}


def outcome(level: str, replicas: int = 1) -> tuple[str, list[str], int]:
    return level, ["--log-level", level], replicas


async def test_each_cluster_gets_the_values_of_the_operator_its_environment_and_its_own(
    settings: FleetSettings,
) -> None:
    async with live_fleet(settings, CLUSTERS) as fleet:
        await fleet.register_operator(
            sample_chart("1.0.0"),
            sample_chart("2.0.0"),
            values={"logLevel": "error"},
            environmentValues={"Staging": {"logLevel": "warn"}},
            clusterValues={"dev-2": {"logLevel": "debug", "replicas": 2}},
        )
        first = await fleet.deploy("1.0.0", "Direct", forceReason="a first install")
        await fleet.finish(first)
        expected = {"dev-1": outcome("error"), "dev-2": outcome("debug", 2), "staging-1": outcome("warn")}
        assert await received(fleet) == expected
        plans = await planned(fleet, first)
        assert {name: each["values"] for name, each in plans.items()} == {
            "dev-1": {"logLevel": "error"},
            "dev-2": {"logLevel": "debug", "replicas": 2},
            "staging-1": {"logLevel": "warn"},
        }
        assert len({each["manifestDigest"] for each in plans.values()}) == 3

        # Its own values win over those of its environment, and the others keep theirs.
        changes = {"clusterValues": {"staging-1": {"logLevel": "trace"}}}
        await fleet.admin.call("PATCH", f"/operators/{CHART}", changes)
        second = await fleet.deploy("2.0.0", "Direct", forceReason="a test")
        await fleet.finish(second)
        expected = {"dev-1": outcome("error"), "dev-2": outcome("error"), "staging-1": outcome("trace")}
        assert await received(fleet) == expected
        diff = (await planned(fleet, second))["staging-1"]["diff"]
        assert "trace" in diff
        assert "warn" in diff
