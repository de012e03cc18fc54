"""The operator's own counters and histograms read as those of prometheus_client."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator

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


@pytest.fixture
def eager_switches() -> Iterator[None]:
    """Let the interpreter change threads as often as it can."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def run_in_threads(work: Callable[[int], None], count: int) -> None:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.usefixtures("eager_switches")
def test_no_update_of_another_thread_is_lost() -> None:
    counter = CounterVector("runs_total", "Runs.", ("name",))
    histogram = HistogramVector("took_seconds", "Time.", ("name",), bounds=BOUNDS)

    def update(number: int) -> None:
        for value in range(20_000):
            counter.labels(str(value % 7)).inc()
            histogram.labels(str(value % 7)).observe(float(value % 3))

    run_in_threads(update, 4)
    counts = [counter.labels(str(name)).value for name in range(7)]
    observed = [histogram.labels(str(name)) for name in range(7)]
    assert sum(counts) == 80_000
    assert counts == [sum(series.counts) for series in observed]
    assert sum(series.sum for series in observed) == 4 * sum(value % 3 for value in range(20_000))


@pytest.mark.usefixtures("eager_switches")
def test_a_scrape_in_another_thread_reads_the_series_that_it_finds() -> None:
    registry = CollectorRegistry()
    counter = CounterVector("runs_total", "Runs.", ("name",))
    registry.register(counter)

    def add(number: int) -> None:
        for name in range(8000):
            counter.labels(f"{number}-{name}").inc()

    adding = threading.Thread(target=run_in_threads, args=(add, 2))
    adding.start()
    while adding.is_alive():
        list(counter.collect())
    adding.join()
    assert len([line for line in page(registry) if line.endswith("} 1.0")]) == 16_000
