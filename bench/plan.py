"""The order of a whole run, and what is left out when time is short."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from bench.scenarios import Extra, Scenario, Work

LARGE = 8000
"""From this size on a repetition takes minutes: such cells come last in their round, the others largest first."""

GRACE_SECONDS = 60.0
"""How much longer than the budget the last step may take."""


class Cell(msgspec.Struct, frozen=True):
    """One scenario at one size."""

    scenario: Scenario
    n: int
    extra: Extra | None = None
    """What is done instead of the scenario's own work."""

    @property
    def work(self) -> Work:
        return self.extra.work if self.extra is not None else self.scenario.run

    def __str__(self) -> str:
        return f"{self.scenario.name} n={self.n:,}" + (f" ({self.extra.what})" if self.extra else "")


class Step(NamedTuple):
    """A cell in one of the rounds, which are counted from 1."""

    cell: Cell
    round: int


def whole_run(scenarios: Iterable[Scenario], repeat: int, sizes: Sequence[int] | None = None) -> list[Step]:
    """Round by round, so that a slow minute of the machine meets every peer. What can be spared comes last.

    `sizes` are meant for trying the whole run out: every scenario then does each of them.
    """
    cells = [Cell(scenario, n) for scenario in scenarios for n in sizes or scenario.sizes]
    cells.sort(key=lambda cell: (cell.n >= LARGE, -cell.n))
    rounds = range(1, repeat + 1)
    steps = []
    for number in rounds:
        for cell in cells:
            steps.append(Step(cell, number))
            if number == 1 and (once := cell.scenario.once.get(cell.n)):
                steps.append(Step(Cell(cell.scenario, cell.n, once), 1))
    late = [Cell(cell.scenario, cell.n, extra) for cell in cells if (extra := cell.scenario.late.get(cell.n))]
    steps += [Step(cell, number) for number in rounds for cell in late]
    return steps


class Budget:
    """How long a run may take. A step that would not end in time is left out, and said so."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._took: dict[Cell, float] = {}

    def note(self, cell: Cell, seconds: float) -> None:
        self._took[cell] = seconds

    def left(self, elapsed: float) -> float:
        """Seconds after which even a step that was allowed is given up."""
        return self._seconds + GRACE_SECONDS - elapsed

    def allows(self, step: Step, elapsed: float) -> bool:
        """Whether the step would end in time, judged by how long its cell took before; an unknown one takes a minute."""
        return elapsed + self._took.get(step.cell, 60.0) <= self._seconds


def shortfalls(steps: Sequence[Step], done: Sequence[Step], minutes: float) -> list[str]:
    """What the budget left out, in words."""
    told = []
    for cell in dict.fromkeys(step.cell for step in steps):
        wanted = sum(step.cell == cell for step in steps)
        had = sum(step.cell == cell for step in done)
        if had < wanted:
            times = f"measured {had} of {wanted} times" if had else "not measured"
            told.append(f"{cell}: {times}, to end within {minutes:.0f} minutes")
    return told
