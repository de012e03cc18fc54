"""What a run measured, kept as JSON and told as a page with tables and plots."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec


class Measurement(msgspec.Struct, frozen=True):
    """One peer doing one scenario's work once."""

    scenario: str
    peer: str
    n: int
    values: dict[str, float]


class Run(msgspec.Struct):
    """Everything of one `python -m bench`."""

    date: str
    machine: dict[str, str]
    versions: dict[str, str]
    left_out: list[str]
    measurements: list[Measurement] = []

    def save(self, directory: Path) -> Path:
        directory.mkdir(exist_ok=True)
        path = directory / f"{self.date}.json"
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1))
        return path


class Spread(msgspec.Struct, frozen=True):
    """The median of repeated measurements, and how far they lay apart."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))

    def __str__(self) -> str:
        if self.low == self.high:
            return shown(self.median)
        return f"{shown(self.median)} ({shown(self.low)}–{shown(self.high)})"


def shown(value: float) -> str:
    """Three figures are what a noisy machine can mean."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


Table = dict[str, dict[str, Spread]]


def tables(measurements: Iterable[Measurement]) -> dict[tuple[str, int], Table]:
    """(scenario, n) -> peer -> quantity -> spread."""
    gathered: dict[tuple[str, int], dict[str, dict[str, list[float]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for one in measurements:
        for quantity, value in one.values.items():
            gathered[one.scenario, one.n][one.peer][quantity].append(value)
    return {
        key: {
            peer: {name: Spread.of(values) for name, values in found.items()} for peer, found in peers.items()
        }
        for key, peers in gathered.items()
    }
