"""PodDisruptionBudgets: how many evictions they allow."""

from __future__ import annotations

import pytest

from tests.devcluster.embedded.controllers.client import World, condition, workload

pytestmark = pytest.mark.virtual_time


async def test_a_budget_follows_the_health_of_its_pods(world: World) -> None:
    budget = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    await world.create("poddisruptionbudgets", "web", budget)
    await world.create("deployments", "web", workload(3))
    await world.settle()
    stored = world.get("poddisruptionbudgets", "web")
    counters = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
    assert [stored["status"][c] for c in counters] == [1, 3, 2, 3]
    assert condition(stored, "DisruptionAllowed")["reason"] == "SufficientPods"
    world.workloads.crash(world.names("pods")[0])
    await world.settle(1)
    stored = world.get("poddisruptionbudgets", "web")
    assert [stored["status"][c] for c in counters] == [0, 2, 2, 3]
    assert condition(stored, "DisruptionAllowed")["reason"] == "InsufficientPods"


async def test_a_least_number_counts_the_pods_there_are(world: World) -> None:
    budget = {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}
    await world.create("poddisruptionbudgets", "web", budget)
    await world.create("replicasets", "web", workload(5))
    await world.settle()
    assert world.get("poddisruptionbudgets", "web")["status"]["disruptionsAllowed"] == 3
