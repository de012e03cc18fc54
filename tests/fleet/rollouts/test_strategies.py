"""Rollouts over the API, on real clusters with the real Helm: each strategy to its end, and a bad version back."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from kapsa.fleet.settings import FleetSettings
from kapsa.fleet.testing.sample_chart import GROUP, ControllerBehaviour, gadget_crd
from tests.fleet.rollouts.live_fleet import CANARY, GREEN, ROLLING, LiveFleet, live_fleet, sample_chart

TEN = {f"c-{number:02}": "Dev" if number < 6 else "Staging" for number in range(9)} | {"prod": "Production"}
THREE = {"dev-1": "Dev", "dev-2": "Dev", "staging-1": "Staging"}
FINISHED = gadget_crd(more={"finish": {"type": "string"}})

pytestmark = pytest.mark.timeout(1200)


@pytest.mark.long
async def test_a_canary_reaches_ten_clusters_and_a_bad_version_leaves_all_of_them_as_they_were(
    settings: FleetSettings,
) -> None:
    async with live_fleet(settings, TEN) as fleet:
        await fleet.register_operator(
            sample_chart("1.0.0"),
            sample_chart("2.0.0", ControllerBehaviour.CRASHES, crd=FINISHED),
            environmentValues={"Production": {"logLevel": "warn"}},
        )
        first = await fleet.deploy("1.0.0", "Canary", CANARY)
        done = await fleet.finish(first)
        assert [len(stage["clusters"]) for stage in done["deployment"]["stages"]] == [1, 2, 7]
        assert {each["state"] for each in done["clusters"]} == {"Healthy"}
        assert await fleet.versions() == dict.fromkeys(TEN, "1.0.0")
        assert await log_levels(fleet) == dict.fromkeys(TEN, "info") | {"prod": "warn"}
        health = await fleet.admin.get("/operators/gadget-operator/health")
        assert (health["overallHealth"], len(health["clusters"])) == ("Healthy", 10), health
        await fleet.create_gadgets(10)
        before = await fleet.content()

        second = await fleet.deploy("2.0.0", "Canary", CANARY)
        ended = await fleet.finish(second, "RolledBack")
        assert "CrashLoopBackOff" in str(ended), await fleet.story(second)
        assert [each["cluster"] for each in ended["clusters"] if each["state"] == "RolledBack"] == ["c-00"]
        assert await fleet.versions() == dict.fromkeys(TEN, "1.0.0")
        assert await fleet.content() == before
        again = fleet.request("2.0.0", "Canary")
        status, refused = await fleet.admin.call("POST", "/deployments", again)
        assert (status, "withdrawn" in str(refused)) == (409, True), refused


@pytest.mark.long
async def test_direct_rolling_and_blue_green_each_reach_three_clusters_and_keep_every_resource(
    settings: FleetSettings, engine: str
) -> None:
    async with live_fleet(settings, THREE, engine=engine) as fleet:
        await install_and_roll(fleet, THREE)


@pytest.mark.real
async def test_every_strategy_reaches_ten_clusters(settings: FleetSettings) -> None:
    async with live_fleet(settings, TEN) as fleet:
        await install_and_roll(fleet, TEN)
        fleet.repository.add(sample_chart("4.0.0"))
        await fleet.admin.post("/operators/gadget-operator/versions", {"version": "4.0.0"})
        await fleet.finish(await fleet.deploy("4.0.0", "Canary", CANARY))
        assert await fleet.versions() == dict.fromkeys(TEN, "4.0.0")


async def install_and_roll(fleet: LiveFleet, clusters: Iterable[str]) -> None:
    """Bring 1.0.0 out by Direct, 2.0.0 with a larger CRD by Rolling, and 3.0.0 by BlueGreen."""
    await fleet.register_operator(
        sample_chart("1.0.0"), sample_chart("2.0.0", crd=FINISHED), sample_chart("3.0.0", crd=FINISHED)
    )
    await fleet.finish(await fleet.deploy("1.0.0", "Direct", forceReason="a first install"))
    await fleet.create_gadgets(5)
    before = await fleet.content()
    assert await serving_clusters(fleet, "finish") == set()

    done = await fleet.finish(await fleet.deploy("2.0.0", "Rolling", ROLLING))
    assert [len(stage["clusters"]) for stage in done["deployment"]["stages"]] == [1] * len(fleet.clusters)
    assert await fleet.versions() == dict.fromkeys(clusters, "2.0.0")
    assert await serving_clusters(fleet, "finish") == set(clusters)

    done = await fleet.finish(await fleet.deploy("3.0.0", "BlueGreen", GREEN))
    gaps = [each["handOverGapSeconds"] for each in done["clusters"]]
    assert all(gap is not None and 0 <= gap < 60 for gap in gaps), gaps
    assert await fleet.versions() == dict.fromkeys(clusters, "3.0.0")
    assert await fleet.content() == before


async def serving_clusters(fleet: LiveFleet, field: str) -> set[str]:
    """Return the clusters whose CRD has a field in the spec of Gadgets."""
    kind = "apiextensions.k8s.io/v1/CustomResourceDefinition"
    serving: set[str] = set()
    for name, client in fleet.clients.items():
        crd = await client.get(kind, f"gadgets.{GROUP}")
        schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        if field in schema["properties"]["spec"]["properties"]:
            serving.add(name)
    return serving


async def log_levels(fleet: LiveFleet) -> dict[str, str]:
    """Return the level that the chart's settings have on each cluster."""
    return {
        name: (await client.get("v1/ConfigMap", "gadget-operator", namespace="gadgets"))["data"]["logLevel"]
        for name, client in fleet.clients.items()
    }
