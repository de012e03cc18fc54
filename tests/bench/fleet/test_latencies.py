"""Percentiles of durations and of exported histograms."""

from __future__ import annotations

import math

import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from bench.fleet.latencies import (
    MetricsReading,
    added,
    difference,
    histogram_percentiles,
    percentile,
    percentiles,
    quantile,
)


@pytest.mark.parametrize(("percent", "value"), [(50, 50), (95, 95), (99, 99), (100, 100)])
def test_a_percentile_is_one_of_the_values(percent: float, value: float) -> None:
    assert percentile(list(range(100, 0, -1)), percent) == value


def test_with_few_values_the_highest_percentile_is_the_highest_value() -> None:
    assert percentiles("rollback s", [3.0, 1.0, 2.0]) == {
        "rollback s p50": 2.0,
        "rollback s p95": 3.0,
        "rollback s p99": 3.0,
    }


def test_nothing_has_no_percentiles() -> None:
    assert percentiles("rollback s", []) == {}
    assert histogram_percentiles("pod check ms", {}) == {}
    assert histogram_percentiles("pod check ms", {1.0: 0.0, math.inf: 0.0}) == {}
    with pytest.raises(ValueError, match="no value"):
        percentile([], 50)


def test_a_quantile_is_interpolated_inside_its_bucket() -> None:
    buckets = {1.0: 0.0, 2.0: 100.0, math.inf: 100.0}
    assert quantile(buckets, 0.25) == pytest.approx(1.25)
    assert quantile(buckets, 1.0) == pytest.approx(2.0)


def test_a_quantile_beyond_the_last_bound_is_that_bound() -> None:
    assert quantile({1.0: 1.0, math.inf: 10.0}, 0.99) == 1.0


def reading(*seconds: float) -> MetricsReading:
    registry = CollectorRegistry()
    histogram = Histogram("check_seconds", "Seconds.", ("check",), buckets=(0.1, 1.0), registry=registry)
    for each in seconds:
        histogram.labels("Pods").observe(each)
    histogram.labels("All").observe(5.0)
    return MetricsReading(generate_latest(registry).decode())


def test_only_durations_since_an_earlier_reading_count() -> None:
    early, late = reading(5.0, 5.0), reading(5.0, 5.0, 0.05, 0.5)
    gained = difference(
        late.buckets("check_seconds", check="Pods"), early.buckets("check_seconds", check="Pods")
    )
    assert gained == {0.1: 1.0, 1.0: 2.0, math.inf: 2.0}


def test_the_histograms_of_all_replicas_are_added() -> None:
    one, other = (each.buckets("check_seconds", check="Pods") for each in (reading(0.05), reading(0.5)))
    assert added([one, other]) == {0.1: 1.0, 1.0: 2.0, math.inf: 2.0}


def test_a_count_is_the_sum_over_all_series_with_its_labels() -> None:
    assert reading(0.05, 0.5).total("check_seconds_count") == 3
    assert reading(0.05, 0.5).total("check_seconds_count", check="Pods") == 2
    assert reading().total("unknown") == 0
