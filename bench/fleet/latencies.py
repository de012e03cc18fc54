"""Percentiles, of single durations and of the histograms that a manager exports."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from prometheus_client.parser import text_string_to_metric_families

PERCENTILES = (50, 95, 99)

Buckets = dict[float, float]
"""The number of durations up to each bound, the last of which is infinite."""


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that this share of all values does not exceed."""
    if not values:
        raise ValueError("there is no value to take a percentile of")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def percentiles(name: str, values: Sequence[float], *, factor: float = 1.0) -> dict[str, float]:
    """Return the percentiles of durations by name, such as `rollback s p99`; nothing without a duration."""
    if not values:
        return {}
    return {f"{name} p{each}": percentile(values, each) * factor for each in PERCENTILES}


def histogram_percentiles(name: str, buckets: Buckets, *, factor: float = 1.0) -> dict[str, float]:
    """Return the percentiles of a histogram by name; nothing if it is empty."""
    if not buckets or not buckets[math.inf]:
        return {}
    return {f"{name} p{each}": quantile(buckets, each / 100) * factor for each in PERCENTILES}


def quantile(buckets: Buckets, share: float) -> float:
    """Return a quantile of a histogram, as Prometheus computes it: linear inside a bucket.

    One beyond the last finite bound is that bound.
    """
    rank = buckets[math.inf] * share
    below, count = 0.0, 0.0
    for bound, reached in sorted(buckets.items()):
        if reached >= rank:
            if math.isinf(bound):
                return below
            return below + (bound - below) * (rank - count) / ((reached - count) or 1)
        below, count = bound, reached
    return below


class MetricsReading:
    """The metrics of one manager at one moment."""

    def __init__(self, text: str) -> None:
        self._samples: dict[str, list[tuple[Mapping[str, str], float]]] = defaultdict(list)
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                self._samples[sample.name].append((sample.labels, sample.value))

    def total(self, name: str, **labels: str) -> float:
        """Return the sum over all series with these labels."""
        return sum(value for _, value in self._matching(name, labels))

    def buckets(self, name: str, **labels: str) -> Buckets:
        """Return a histogram, added up over all series with these labels."""
        added: Buckets = defaultdict(float)
        for series, value in self._matching(f"{name}_bucket", labels):
            added[float(series["le"])] += value
        return dict(added)

    def _matching(self, name: str, labels: Mapping[str, str]) -> Iterable[tuple[Mapping[str, str], float]]:
        return [each for each in self._samples[name] if labels.items() <= each[0].items()]


def difference(after: Buckets, before: Buckets) -> Buckets:
    """Return what a histogram has gained since an earlier reading."""
    return {bound: count - before.get(bound, 0.0) for bound, count in after.items()}


def added(histograms: Iterable[Buckets]) -> Buckets:
    """Return one histogram of several with the same bounds."""
    total: Buckets = defaultdict(float)
    for each in histograms:
        for bound, count in each.items():
            total[bound] += count
    return dict(total)
