"""The loop of every sweep: run a scenario at each point, or at a seeded sample, and report the differences."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

__all__ = ["Sample", "SweepReport", "run_points"]

P = TypeVar("P")


class Sample(msgspec.Struct, frozen=True):
    """A seeded choice of a sweep's points, for a quick run. The same seed chooses the same points."""

    size: int
    """Points to run, at most."""
    seed: int = 0

    def of(self, points: Sequence[P]) -> Sequence[P]:
        """Return the chosen points in their own order."""
        if len(points) <= self.size:
            return points
        chosen = random.Random(self.seed).sample(range(len(points)), self.size)  # noqa: S311 - not a secret
        return [points[index] for index in sorted(chosen)]


class SweepReport(msgspec.Struct, frozen=True):
    """The outcome of a scenario that was disturbed at many points."""

    points: int
    """Points that were run."""
    kind: str
    """The kind of point, as a plural: `faults at calls`."""
    failures: dict[str, str]
    """The difference at the end, by point."""
    total: int
    """Points of the complete sweep."""

    def __str__(self) -> str:
        verdict = "all end like the undisturbed run" if not self.failures else f"{len(self.failures)} FAILED"
        count = str(self.points) if self.points == self.total else f"{self.points} of {self.total}"
        lines = "".join(f"\n  {point}: {why}" for point, why in self.failures.items())
        return f"{count} {self.kind}: {verdict}{lines}"


async def run_points(
    points: Sequence[P], difference_at: Callable[[P], Awaitable[str]], *, kind: str, sample: Sample | None
) -> SweepReport:
    """Run each point, or the sample of them, and collect the differences.

    An assertion that fails is one, too.
    """
    chosen = points if sample is None else sample.of(points)
    failures: dict[str, str] = {}
    for point in chosen:
        try:
            why = await difference_at(point)
        except AssertionError as error:
            why = str(error)
        if why:
            failures[str(point)] = why
    return SweepReport(len(chosen), kind, failures, len(points))
