"""PodDisruptionBudgets: the number of evictions they allow."""

from __future__ import annotations

import pytest

from tests.devcluster.embedded.controllers.client import ObjectClient, condition, workload

pytestmark = pytest.mark.virtual_time


async def test_a_budget_follows_the_health_of_its_pods(client: ObjectClient) -> None:
    budget = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    await client.create("poddisruptionbudgets", "web", budget)
    await client.create("deployments", "web", workload(3))
    await client.settle()
    stored = client.get("poddisruptionbudgets", "web")
    counters = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
    assert [stored["status"][c] for c in counters] == [1, 3, 2, 3]
    assert condition(stored, "DisruptionAllowed")["reason"] == "SufficientPods"
    client.workloads.crash(client.names("pods")[0])
    await client.settle(1)
    stored = client.get("poddisruptionbudgets", "web")
    assert [stored["status"][c] for c in counters] == [0, 2, 2, 3]
    assert condition(stored, "DisruptionAllowed")["reason"] == "InsufficientPods"


async def test_min_available_as_a_number_counts_the_existing_pods(client: ObjectClient) -> None:
    budget = {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}
    await client.create("poddisruptionbudgets", "web", budget)
    await client.create("replicasets", "web", workload(5))
    await client.settle()
    assert client.get("poddisruptionbudgets", "web")["status"]["disruptionsAllowed"] == 3
