"""Sweeps over crashes: the operator crashes before, during and after each write of a reference run.

For each point the end state, and how often each object was created and deleted, must equal those of the
undisturbed run, and the operator must be at rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from kapsa.devcluster import FaultPlan
from kapsa.devcluster.faults import Crash, FaultRule
from kapsa.runtime.testing._harness import Harness, RecordedCall
from kapsa.runtime.testing._scenario import CLIENT, SIDE_WRITES, Scenario, difference, run_scenario
from kapsa.runtime.testing._sweep_report import Sample, SweepReport, run_points

__all__ = ["CRASH_MOMENTS", "CrashMoment", "CrashPoint", "crash_at_every_write"]

CrashMoment = Literal["before", "commit", "after"]
"""Before the write, after its commit and before the response, after the response."""
CRASH_MOMENTS: tuple[CrashMoment, ...] = ("before", "commit", "after")
"""Each moment at which `crash_at_every_write` crashes the operator by default."""


class CrashPoint(msgspec.Struct, frozen=True):
    """A point at which the operator crashes."""

    write: int
    """The number of the operator's write, counted from 1."""
    moment: CrashMoment
    description: str = ""
    """The write, in words."""
    again: int = 0
    """The number of writes until a second crash, after the commit of the last one; 0 for a single crash."""

    def __str__(self) -> str:
        twice = f" and again {self.again} writes later" if self.again else ""
        return f"{self.moment} write {self.write} ({self.description}){twice}"

    def arm(self, plan: FaultPlan, harness: Harness) -> None:
        """Prepare the crash."""
        if self.moment == "after":
            harness.observers.append(_CrashAfter(plan, self.write))
        else:
            when: Literal["before", "after"] = "before" if self.moment == "before" else "after"
            plan.add(FaultRule(action=Crash(), verb="write", client=CLIENT, nth=self.write, when=when))
        if self.again:
            later = self.write + self.again
            plan.add(FaultRule(action=Crash(), verb="write", client=CLIENT, nth=later, when="after"))


class _CrashAfter:
    """An observer that crashes the operator once it has the response to a write, before it can use it."""

    def __init__(self, plan: FaultPlan, write: int) -> None:
        self._plan = plan
        self._left = write

    def __call__(self, recorded: RecordedCall) -> None:
        if recorded.call.writes:
            self._left -= 1
            if self._left == 0:
                self._plan.crash(CLIENT)


async def crash_at_every_write(
    scenario: Scenario,
    *,
    moments: Sequence[CrashMoment] = CRASH_MOMENTS,
    pairs: int = 0,
    sample: Sample | None = None,
) -> SweepReport:
    """Run the scenario undisturbed, then once for each write and moment. Needs a virtual-time loop.

    `pairs` crashes the operator a second time, at the commit of each of that many following writes. `sample`
    runs only a seeded choice of the points.
    """
    reference = await run_scenario(scenario)
    points = [
        CrashPoint(number, moment, f"{record.verb} {record.resource} {record.namespace}/{record.name}", again)
        for number, record in enumerate(reference.writes, start=1)
        if record.resource not in SIDE_WRITES
        for moment in moments
        for again in range(pairs + 1 if moment == "commit" else 1)
    ]

    if not points:
        raise AssertionError("the undisturbed run made no write: there is nothing to crash at")

    async def difference_at(point: CrashPoint) -> str:
        return difference(reference, await run_scenario(scenario, point.arm))

    writes = sum(record.resource not in SIDE_WRITES for record in reference.writes)
    return await run_points(points, difference_at, kind=f"crash points over {writes} writes", sample=sample)
