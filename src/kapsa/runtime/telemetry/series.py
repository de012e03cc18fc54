"""Counters and histograms whose update is an addition: an operator makes a dozen updates for each run.

Those of prometheus_client take a lock at each. Here an update reads and writes its number without a call in between,
and only at calls and loops does the interpreter (with its global lock) switch to another thread, so none is lost. A
scrape reads the series as a metric family of prometheus_client.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Generic, TypeVar

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

__all__ = ["CounterSeries", "CounterVector", "HistogramSeries", "HistogramVector"]

S = TypeVar("S")


class CounterSeries:
    """A number that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self) -> None:
        """Count one more."""
        self.value += 1.0


class HistogramSeries:
    """Observed values: their sum, and how many are in each bucket."""

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """The values in each bucket alone; the last one has no upper bound."""
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Record a value. A bucket includes its upper bound."""
        self.sum += value
        self.counts[bisect_left(self._bounds, value)] += 1


class _Vector(Generic[S]):
    """Series of one name, one for each combination of label values. A collector of prometheus_client."""

    def __init__(self, name: str, text: str, labels: Sequence[str]) -> None:
        self.name = name
        self._text = text
        self._labels = tuple(labels)
        self._series: dict[tuple[str, ...], S] = {}

    def labels(self, *values: str) -> S:
        """Return the series with these label values."""
        series = self._series.get(values)
        if series is None:
            if len(values) != len(self._labels):
                raise ValueError(f"{self.name} has the labels {self._labels}, got {len(values)} values")
            series = self._series.setdefault(values, self._new())  # another thread may have been first
        return series

    def _new(self) -> S:
        raise NotImplementedError

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the names of an operator's own metrics are distinct."""
        return ()


class CounterVector(_Vector[CounterSeries]):
    """Counters of one name."""

    def _new(self) -> CounterSeries:
        return CounterSeries()

    def collect(self) -> Iterator[Metric]:
        """Yield the counters as a metric family."""
        family = CounterMetricFamily(self.name, self._text, labels=self._labels)
        for values, series in self._series.copy().items():  # another thread may add one meanwhile
            family.add_metric(values, series.value)
        yield family


class HistogramVector(_Vector[HistogramSeries]):
    """Histograms of one name, with the same buckets."""

    def __init__(self, name: str, text: str, labels: Sequence[str], *, bounds: Sequence[float]) -> None:
        super().__init__(name, text, labels)
        self._bounds = tuple(sorted(bounds))

    def _new(self) -> HistogramSeries:
        return HistogramSeries(self._bounds)

    def collect(self) -> Iterator[Metric]:
        """Yield the histograms as a metric family."""
        family = HistogramMetricFamily(self.name, self._text, labels=self._labels)
        bounds = [*map(floatToGoString, self._bounds), "+Inf"]
        for values, series in self._series.copy().items():  # another thread may add one meanwhile
            buckets = list(zip(bounds, map(float, accumulate(series.counts)), strict=True))
            family.add_metric(values, buckets, series.sum)
        yield family
