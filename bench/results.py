"""The measurements of a run: stored as JSON, and as tables with the spread of the repetitions."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec


class Measurement(msgspec.Struct, frozen=True):
    """One execution of a scenario by one peer."""

    scenario: str
    peer: str
    n: int
    values: dict[str, float]


class Run(msgspec.Struct):
    """The results of one `python -m bench`."""

    date: str
    machine: dict[str, str]
    versions: dict[str, str]
    left_out: list[str] = []
    """Scenarios that were not measured, or less often than others, with the reasons."""
    complete: bool = False
    minutes: float = 0.0
    load: float = 0.0
    """The load of the machine at the start: other processes affect the numbers."""
    measurements: list[Measurement] = []
    separate: list[str] = []
    """Scenarios that were measured in a run of their own, with its circumstances."""

    def save(self, directory: Path) -> Path:
        """Write the measurements so far. An incomplete run never replaces a complete one."""
        directory.mkdir(exist_ok=True)
        partial = directory / f"{self.date}.partial.json"
        path = directory / f"{self.date}.json" if self.complete else partial
        self.write(path)
        if self.complete:
            partial.unlink(missing_ok=True)
        return path

    def write(self, path: Path) -> None:
        """Write the measurements to a file, in place of what it has. An interruption leaves what it had."""
        new = path.with_suffix(".new")
        new.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")
        new.replace(path)

    def take(self, later: Run) -> None:
        """Take the measurements of a later run, in place of those of the same scenarios and sizes.

        Reasons why these were not measured before are dropped.
        """
        taken = dict.fromkeys((one.scenario, one.n) for one in later.measurements)
        kept = [one for one in self.measurements if (one.scenario, one.n) not in taken]
        self.measurements = [*kept, *later.measurements]
        cells = [f"{scenario} n={n:,}" for scenario, n in taken]
        if cells:
            self.separate.append(f"{', '.join(cells)} on {later.date}, load before {later.load:.1f}")
        # A line has the cell, and then its repetition, the name of its late part, or the reason.
        answered = tuple(f"{cell}{end}" for cell in cells for end in (":", ", ", " ("))
        self.left_out = [line for line in self.left_out if not line.startswith(answered)] + later.left_out

    @classmethod
    def load_from(cls, path: Path) -> Run:
        return msgspec.json.decode(path.read_bytes(), type=cls)


class PartlyMeasured(RuntimeError):  # noqa: N818 - named as what happened
    """A failure of a scenario after some of its peers were measured, which are kept."""

    def __init__(self, measurements: Sequence[Measurement], cause: BaseException) -> None:
        peers = ", ".join(one.peer for one in measurements)
        why = str(cause) or type(cause).__name__
        super().__init__(f"measured {peers} and nothing after: {why}")
        self.measurements = list(measurements)


class Spread(msgspec.Struct, frozen=True):
    """The median of repeated measurements, with the lowest and the highest."""

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
    """Format a value with three significant digits."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


Table = dict[str, dict[str, Spread]]
"""peer -> quantity -> spread"""


def tables(measurements: Iterable[Measurement]) -> dict[tuple[str, int], Table]:
    """Return the tables by scenario and size, smaller sizes first."""
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
            peer: {name: Spread.of(values) for name, values in quantities.items()}
            for peer, quantities in gathered[key].items()
        }
        for key in ordered
    }
