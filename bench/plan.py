"""The order of a complete run, and its time limit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from bench.scenarios import Extra, Scenario, Work

LARGE = 8000
"""Cells of this size take minutes. They come last in their round, the others largest first."""

GRACE_SECONDS = 60.0
"""Seconds by which the last step may exceed the budget."""


class Cell(msgspec.Struct, frozen=True):
    """One scenario at one size."""

    scenario: Scenario
    n: int
    extra: Extra | None = None
    """Work that replaces the scenario's own."""

    @property
    def work(self) -> Work:
        return self.extra.work if self.extra is not None else self.scenario.run

    def __str__(self) -> str:
        return f"{self.scenario.name} n={self.n:,}" + (f" ({self.extra.name})" if self.extra else "")


class Step(NamedTuple):
    """A cell in one of the rounds, counted from 1."""

    cell: Cell
    round: int


def whole_run(scenarios: Iterable[Scenario], repeat: int, sizes: Sequence[int] | None = None) -> list[Step]:
    """Return the steps of a complete run, in rounds, so that a slow minute of the machine affects all peers.

    The least important steps come last. `sizes` replaces the sizes of all scenarios, for a trial run.
    """
    every = [Cell(scenario, n) for scenario in scenarios for n in sizes or scenario.sizes]
    every.sort(key=lambda cell: (cell.n >= LARGE, -cell.n))
    cells = [cell for cell in every if not cell.scenario.rounds]
    rounds = range(1, repeat + 1)
    steps = []
    for number in rounds:
        for cell in cells:
            steps.append(Step(cell, number))
            if number == 1 and (once := cell.scenario.once.get(cell.n)):
                steps.append(Step(Cell(cell.scenario, cell.n, once), 1))
    late = [Cell(cell.scenario, cell.n, extra) for cell in cells if (extra := cell.scenario.late.get(cell.n))]
    steps += [Step(cell, number) for number in rounds for cell in late]
    slow = [cell for cell in every if cell.scenario.rounds]
    steps += [Step(cell, number) for number in rounds for cell in slow if number <= cell.scenario.rounds]
    return steps


class Budget:
    """The time limit of a run. A step that would exceed it is skipped and reported."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._took: dict[Cell, float] = {}

    def record(self, cell: Cell, seconds: float) -> None:
        self._took[cell] = seconds

    def left(self, elapsed: float) -> float:
        """Return the seconds after which a running step is aborted."""
        return self._seconds + GRACE_SECONDS - elapsed

    def allows(self, step: Step, elapsed: float) -> bool:
        """Return whether the step would end in time, by its last duration, or by the one that is expected."""
        took = self._took.get(step.cell, step.cell.scenario.expected_seconds)
        return elapsed + took <= self._seconds


def shortfalls(steps: Sequence[Step], done: Sequence[Step], minutes: float) -> list[str]:
    """Return a line for each cell that was measured less often than planned."""
    lines = []
    for cell in dict.fromkeys(step.cell for step in steps):
        planned = sum(step.cell == cell for step in steps)
        measured = sum(step.cell == cell for step in done)
        if measured < planned:
            times = f"measured {measured} of {planned} times" if measured else "not measured"
            lines.append(f"{cell}: {times}, for lack of time ({minutes:.0f} minutes)")
    return lines
