"""What a run measured: kept as JSON, gathered into tables with the spread of its repetitions."""

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
    left_out: list[str] = []
    """What was not measured, or less often than the rest, and why."""
    complete: bool = False
    minutes: float = 0.0
    load: float = 0.0
    """The machine's load when the run began: what others did meanwhile is in the numbers."""
    measurements: list[Measurement] = []

    def save(self, directory: Path) -> Path:
        """Keep what there is so far; a run that ended early never takes the place of a whole one."""
        directory.mkdir(exist_ok=True)
        partial = directory / f"{self.date}.partial.json"
        path = directory / f"{self.date}.json" if self.complete else partial
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")
        if self.complete:
            partial.unlink(missing_ok=True)
        return path

    @classmethod
    def load_from(cls, path: Path) -> Run:
        return msgspec.json.decode(path.read_bytes(), type=cls)


class Spread(msgspec.Struct, frozen=True):
    """The median of repeated measurements, and how far they lay apart."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values), len(values))

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
"""peer -> quantity -> spread"""


def tables(measurements: Iterable[Measurement]) -> dict[tuple[str, int], Table]:
    """(scenario, n) -> table, smaller sizes first."""
    gathered: dict[tuple[str, int], dict[str, dict[str, list[float]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for one in measurements:
        for quantity, value in one.values.items():
            gathered[one.scenario, one.n][one.peer][quantity].append(value)
    scenarios = list(dict.fromkeys(scenario for scenario, _ in gathered))
    ordered = sorted(gathered, key=lambda key: (scenarios.index(key[0]), key[1]))
    return {
        key: {
            peer: {name: Spread.of(values) for name, values in found.items()}
            for peer, found in gathered[key].items()
        }
        for key in ordered
    }
