"""Absences: an operator that is away while things change, and one that comes back to an API server that lags behind.

The way to a state must not matter, only the state; and an old view of the world must do the present no harm.
"""

from __future__ import annotations

from collections.abc import Callable

from kapsa.runtime.testing._scenario import (
    CLIENT,
    Ending,
    Interlude,
    Scenario,
    Stage,
    SweepReport,
    difference,
    difference_in_the_end,
    play,
)

__all__ = ["miss_every_step", "restart_in_every_past"]

_LAG_SECONDS = 120.0


async def miss_every_step(scenario: Scenario) -> SweepReport:
    """Have the operator be away from each step to each later one, so that it never sees what was in between.

    In the end everything must be as if it had seen it all. What it made in between need not: the number of creates
    and deletes is not compared. Needs a virtual-time loop.
    """
    reference = await play(scenario)
    failures: dict[str, str] = {}
    count = len(scenario.steps)
    spans = [(first, last) for first in range(1, count + 1) for last in range(first, count + 1)]
    for first, last in spans:
        why = await _why(
            scenario, _Away(first, last), lambda outcome: difference_in_the_end(reference, outcome)
        )
        if why:
            failures[f"away from step {first} to step {last}"] = why
    return SweepReport(len(spans), "absences", failures)


async def restart_in_every_past(scenario: Scenario) -> SweepReport:
    """Restart the operator after each step, with reads that show how things were after each earlier one.

    For two minutes it believes in the past, then the present comes back. The end, and how often each object was
    created and deleted, must be as if nothing had happened. Needs a virtual-time loop.
    """
    reference = await play(scenario)
    failures: dict[str, str] = {}
    pasts = [(now, past) for now in range(1, len(scenario.steps) + 1) for past in range(now)]
    for now, past in pasts:
        why = await _why(scenario, _Lag(now, past), lambda outcome: difference(reference, outcome))
        if why:
            failures[f"restarted after step {now}, with reads as of step {past}"] = why
    return SweepReport(len(pasts), "restarts in the past", failures)


async def _why(scenario: Scenario, interlude: Interlude, compare: Callable[[Ending], str]) -> str:
    try:
        return compare(await play(scenario, interlude=interlude))
    except AssertionError as error:
        return str(error)


class _Away(Interlude):
    def __init__(self, first: int, last: int) -> None:
        self._first, self._last = first, last

    async def before(self, number: int, stage: Stage) -> None:
        if number == self._first:
            await stage.kill()

    async def after(self, number: int, stage: Stage) -> None:
        if number == self._last:
            await stage.start()


class _Lag(Interlude):
    def __init__(self, now: int, past: int) -> None:
        self._now, self._past = now, past
        self._revision = 0

    async def settled(self, number: int, stage: Stage) -> None:
        if number == self._past:
            self._revision = stage.harness.cluster.server.backend.store.revision
        if number == self._now:
            await stage.kill()
            stage.plan.freeze(self._revision, CLIENT)
            await stage.start()
            await stage.harness.clock.sleep(_LAG_SECONDS)
            stage.plan.thaw()
            await stage.harness.settle()
