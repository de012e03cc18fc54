"""The fleet scenario: its quantities, and a run at a tiny size with real managers, clusters and Helm."""

from __future__ import annotations

import math
import os
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from bench.fleet import measurement
from bench.fleet.latencies import MetricsReading
from bench.fleet.limits import CHECKS, FAILED_DEPLOYMENTS, FAILED_REQUESTS, MEMORY, ONE, fleet_limits
from bench.fleet.measurement import durations, health_checks, measure_fleet, shares
from bench.fleet.size import FleetSize
from bench.processes import family
from bench.results import Measurement, PartlyMeasured
from bench.scenarios.fleet import SCENARIO
from kapsa.fleet.infrastructure.health.metrics import HealthMetrics

REPOSITORY = Path(__file__).resolve().parents[3]


def scrape(checks: int, runs: int) -> MetricsReading:
    bounds = {"0.05": checks, "+Inf": checks}
    kinds = ("Pods", "Webhooks", "Resources", "All")
    lines = ["# TYPE operator_healthcheck_duration_seconds histogram"]
    for kind in kinds:
        lines += [
            f'operator_healthcheck_duration_seconds_bucket{{check="{kind}",le="{bound}"}} {count}'
            for bound, count in bounds.items()
        ]
        lines.append(f'operator_healthcheck_duration_seconds_count{{check="{kind}"}} {checks}')
    lines.append("# TYPE helm_install_duration_seconds histogram")
    lines.append(f'helm_install_duration_seconds_count{{verb="upgrade",result="succeeded"}} {runs}')
    return MetricsReading("\n".join(lines) + "\n")


def test_requests_are_in_milliseconds_and_deployments_in_seconds() -> None:
    values = durations({"GET /operators": [0.05], "rollback": [3.0, 4.0]})
    assert (values["GET /operators ms p99"], values["GET /operators, number"]) == (50, 1)
    assert (values["rollback s p50"], values["rollback s p99"], values["rollback, number"]) == (3.0, 4.0, 2)


def test_every_check_of_the_specification_is_measured() -> None:
    values = health_checks([scrape(0, 0)], [scrape(10, 0)])
    assert values.keys() == {f"{name} ms p{percent}" for name in CHECKS for percent in (50, 95, 99)}
    assert all(0 < value <= 50 for value in values.values())


def test_every_limit_of_a_check_is_a_bound_of_the_histogram() -> None:
    registry = CollectorRegistry()
    HealthMetrics(registry).record_duration("Pods", 0.01)
    exported = MetricsReading(generate_latest(registry).decode())
    bounds = exported.buckets("operator_healthcheck_duration_seconds", check="Pods").keys()
    limits = [limit for name, limit in fleet_limits().items() if "check ms" in name]
    assert len(limits) == 12
    assert {value / 1000 for limit in limits for value in (limit.specified, limit.ours)} <= bounds


def test_the_share_of_the_least_busy_replica_is_of_the_work_since_the_start() -> None:
    before = [scrape(100, 0), scrape(0, 0), scrape(0, 0)]
    after = [scrape(110, 1), scrape(30, 1), scrape(60, 2)]
    assert shares(before, after) == {
        "health checks of the least busy replica %": 10,
        "Helm runs of the least busy replica %": 25,
    }
    assert shares(before[:1], after[:1]) == {}


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_a_tiny_fleet_is_measured_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(REPOSITORY)
    size = FleetSize(
        clusters=2,
        operators=4,
        installed=3,
        deployments=3,
        clients=4,
        check_seconds=1,
        rest_seconds=1,
        limit_seconds=800,
    )
    before = set(family(os.getpid()))
    ((_, values),) = [each async for each in measure_fleet(size, tmp_path, {"two replicas": 2})]
    missing = fleet_limits().keys() - values.keys()
    assert missing == set()
    assert (values[FAILED_REQUESTS], values[FAILED_DEPLOYMENTS]) == (0, 0)
    assert 10 < values[MEMORY] < math.inf
    assert values["deployment to one cluster, number"] == 2
    assert 0 < values["under load: % of a core, the clients"] < 100
    assert set(family(os.getpid())) <= before, "a process is left"


def test_the_cpu_of_a_busy_replica_stays_below_what_the_specification_allows() -> None:
    limit = fleet_limits()["under load: % of a core, busiest replica"]
    assert (limit.specified, limit.ours) == (80, 80)


async def test_one_replica_is_kept_if_three_fail(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def fails_with_three(*_: object) -> AsyncGenerator[tuple[str, dict[str, float]], None]:
        yield ONE, {MEMORY: 100.0}
        raise RuntimeError("a manager ended")

    monkeypatch.setattr(measurement, "measure_fleet", fails_with_three)
    with pytest.raises(
        PartlyMeasured, match="measured one replica and nothing after: a manager ended"
    ) as failure:
        await SCENARIO.run(25, tmp_path)
    assert failure.value.measurements == [Measurement("fleet", ONE, 25, {MEMORY: 100.0})]


async def test_a_failure_of_one_replica_is_reported_as_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def fails(*_: object) -> AsyncGenerator[tuple[str, dict[str, float]], None]:
        raise RuntimeError("a manager ended")
        yield ONE, {}

    monkeypatch.setattr(measurement, "measure_fleet", fails)
    with pytest.raises(RuntimeError, match=r"^a manager ended$"):
        await SCENARIO.run(25, tmp_path)


def test_the_scenario_has_the_sizes_at_which_growth_can_be_seen() -> None:
    assert SCENARIO.sizes == (25, 50, 100)
