"""The operator's own counters and histograms read as those of prometheus_client."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from kapsa.runtime.telemetry.series import CounterVector, HistogramVector

BOUNDS = (0.001, 0.1, 1.0, 30.0)
VALUES = st.lists(st.one_of(st.sampled_from(BOUNDS), st.floats(min_value=0, max_value=1e6)), max_size=20)


def page(registry: CollectorRegistry) -> list[str]:
    """Return the lines of a scrape, without the times at which prometheus_client created its series."""
    return [line for line in generate_latest(registry).decode().splitlines() if "_created" not in line]


@given(values=VALUES)
def test_a_histogram_has_the_buckets_of_prometheus(values: list[float]) -> None:
    expected, actual = CollectorRegistry(), CollectorRegistry()
    theirs = Histogram("took_seconds", "Time.", ("verb",), buckets=BOUNDS, registry=expected)
    ours = HistogramVector("took_seconds", "Time.", ("verb",), bounds=BOUNDS)
    actual.register(ours)
    for value in values:
        theirs.labels("get").observe(value)
        ours.labels("get").observe(value)
    assert page(actual) == page(expected)


def test_a_counter_reads_as_that_of_prometheus() -> None:
    expected, actual = CollectorRegistry(), CollectorRegistry()
    theirs = Counter("runs_total", 'Runs\nand "more".', ("name", "result"), registry=expected)
    ours = CounterVector("runs_total", 'Runs\nand "more".', ("name", "result"))
    actual.register(ours)
    for labels in (("a", "ok"), ("a", 'b"\n\\'), ("a", "ok")):
        theirs.labels(*labels).inc()
        ours.labels(*labels).inc()
    theirs.labels("b", "ok")  # a series without any run
    ours.labels("b", "ok")
    assert page(actual) == page(expected)


def test_a_series_without_labels_has_its_name_alone() -> None:
    registry = CollectorRegistry()
    counter = CounterVector("blocked_total", "Times.", ())
    registry.register(counter)
    counter.labels().inc()
    assert "blocked_total 1.0" in page(registry)


def test_a_wrong_number_of_labels_is_rejected() -> None:
    with pytest.raises(ValueError, match="runs_total has the labels"):
        CounterVector("runs_total", "Runs.", ("name", "result")).labels("a")
