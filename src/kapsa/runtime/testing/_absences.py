"""Sweeps over absences: an operator that is down while objects change, or restarts with stale reads.

Only the final state may matter, not the changes that led to it; and stale reads must not cause harm.
"""

from __future__ import annotations

from kapsa.runtime.testing._scenario import (
    CLIENT,
    Scenario,
    ScenarioRun,
    StepHooks,
    difference,
    difference_in_state,
    run_scenario,
)
from kapsa.runtime.testing._sweep_report import Sample, SweepReport, run_points

__all__ = ["miss_every_step", "restart_in_every_past"]

_LAG_SECONDS = 120.0


async def miss_every_step(scenario: Scenario, *, sample: Sample | None = None) -> SweepReport:
    """Stop the operator from each step to each later one, so that it never observes the states in between.

    The end state must be the same as if it had observed them all. The objects it made in between may differ:
    the number of creates and deletes is not compared. `sample` runs a seeded choice. Needs a virtual-time
    loop.
    """
    reference = await run_scenario(scenario)
    count = len(scenario.steps)
    points = [_Downtime(first, last) for first in range(1, count + 1) for last in range(first, count + 1)]

    async def difference_at(downtime: _Downtime) -> str:
        return difference_in_state(reference, await run_scenario(scenario, hooks=downtime))

    return await run_points(points, difference_at, kind="absences", sample=sample)


async def restart_in_every_past(scenario: Scenario, *, sample: Sample | None = None) -> SweepReport:
    """Restart the operator after each step, with reads that return the state after each earlier one.

    The reads lag for two minutes, then catch up. The end state, and how often each object was created and
    deleted, must be the same as in the undisturbed run. `sample` runs a seeded choice. Needs a virtual-time
    loop.
    """
    reference = await run_scenario(scenario)
    points = [_Lag(now, past) for now in range(1, len(scenario.steps) + 1) for past in range(now)]

    async def difference_at(lag: _Lag) -> str:
        return difference(reference, await run_scenario(scenario, hooks=lag))

    return await run_points(points, difference_at, kind="restarts in the past", sample=sample)


class _Downtime(StepHooks):
    def __init__(self, first: int, last: int) -> None:
        self._first, self._last = first, last

    def __str__(self) -> str:
        return f"down from step {self._first} to step {self._last}"

    async def before(self, number: int, run: ScenarioRun) -> None:
        if number == self._first:
            await run.kill()

    async def after(self, number: int, run: ScenarioRun) -> None:
        if number == self._last:
            await run.start()


class _Lag(StepHooks):
    def __init__(self, now: int, past: int) -> None:
        self._now, self._past = now, past
        self._revision = 0

    def __str__(self) -> str:
        return f"restarted after step {self._now}, with reads as of step {self._past}"

    async def settled(self, number: int, run: ScenarioRun) -> None:
        if number == self._past:
            self._revision = run.harness.cluster.revision
        if number == self._now:
            await run.kill()
            run.plan.freeze(self._revision, CLIENT)
            await run.start()
            await run.harness.clock.sleep(_LAG_SECONDS)
            run.plan.thaw()
            await run.harness.settle()
