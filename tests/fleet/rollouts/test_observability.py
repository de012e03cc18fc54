"""A rollout by the real Helm, as a monitoring system sees it."""

from __future__ import annotations

import pytest

from kapsa.fleet.settings import FleetSettings
from tests.eventually import eventually
from tests.fleet.rollouts.live_fleet import LiveFleet, live_fleet, sample_chart
from tests.fleet.seed_metrics import seed_values

pytestmark = [pytest.mark.timeout(1200), pytest.mark.long]

SECONDS = 400
CLUSTERS = {"dev-1": "Dev", "dev-2": "Dev"}


async def scraped(fleet: LiveFleet) -> dict[str, float]:
    """Return the metrics of the specification, freshly counted, from the endpoint of the manager."""
    services = fleet.server.services
    await services.telemetry.refresh(services.database, services.health.operators)
    response = await fleet.admin.http.get(f"{fleet.server.http.url}/metrics")
    assert response.status_code == 200, response.text
    return seed_values(response.text)


async def test_each_metric_of_the_specification_moves_with_a_rollout(settings: FleetSettings) -> None:
    async with live_fleet(settings, CLUSTERS) as fleet:
        await fleet.register_operator(sample_chart("1.0.0"), sample_chart("2.0.0"))
        before = await scraped(fleet)
        first = await fleet.deploy("1.0.0", "Direct")
        assert (await scraped(fleet))["deployments_active"] == 1
        await fleet.finish(first)
        second = await fleet.deploy("2.0.0", "Direct")
        await fleet.finish(second)
        await fleet.admin.post(f"/deployments/{second}/rollback", {"reason": "shown to work"})
        await fleet.finish(second, "RolledBack")
        refused = await fleet.deploy("1.0.0", "Direct", values={"replicas": "many"})
        await fleet.finish(refused, "Failed")
        healthy = await eventually(
            lambda: scraped(fleet),
            lambda seen: seen["operators_healthy"] == 1,
            "a healthy operator",
            seconds=SECONDS,
        )
        for cluster in fleet.clusters.values():
            cluster.workloads.crash("*")
        after = await eventually(
            lambda: scraped(fleet),
            lambda seen: seen["operators_unhealthy"] == 1,
            "an unhealthy operator",
            seconds=SECONDS,
        )
        moved = {name: after[name] - before[name] for name in before}
        assert moved["operators_deployed_total"] == moved["operator_deploy_duration_seconds_count"] == 2
        assert moved["operators_rollback_total"] == moved["operator_rollback_duration_seconds_count"] == 1
        assert moved["operators_failed_total"] == 1
        assert moved["helm_install_duration_seconds_count"] == 6, "two installs, two upgrades, two rollbacks"
        assert moved["crds_validated_total"] >= 4
        assert moved["operator_healthcheck_duration_seconds_count"] > 0
        assert after["clusters_registered_total"] == after["clusters_count"] == 2
        assert (healthy["operators_count"], healthy["deployments_active"]) == (1, 0)
