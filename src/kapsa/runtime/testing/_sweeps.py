"""Sweeps over faults: each request of an operator fails once in each way that requests fail.

Whatever happens to one call, or to one event of a watch, the outcome must be that of the undisturbed run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from kapsa.devcluster import FaultPlan
from kapsa.devcluster.faults import Answer, Compact, Cut, Delay, Drop, Duplicate, Expire, FaultRule, Silence
from kapsa.runtime.cache.informer import SILENCE_SECONDS
from kapsa.runtime.testing._harness import Harness
from kapsa.runtime.testing._scenario import (
    CLIENT,
    SIDE_WRITES,
    Scenario,
    ScenarioOutcome,
    difference,
    run_scenario,
)
from kapsa.runtime.testing._sweep_report import Sample, SweepReport, run_points

__all__ = ["CALL_FAULTS", "WATCH_FAULTS", "disturb_every_call", "disturb_every_watch"]

CALL_FAULTS: Mapping[str, FaultRule] = {
    "409": FaultRule(action=Answer(code=409, reason="Conflict")),
    "429": FaultRule(action=Answer(code=429, reason="TooManyRequests", retry_after=1)),
    "500": FaultRule(action=Answer(code=500, reason="InternalError")),
    "504": FaultRule(action=Answer(code=504, reason="Timeout")),
    "504 after the commit": FaultRule(action=Answer(code=504, reason="Timeout"), when="after"),
    "reset": FaultRule(action=Drop()),
    "reset after the commit": FaultRule(action=Drop(), when="after"),
    "45 s late": FaultRule(action=Delay(seconds=45)),
    "history compacted": FaultRule(action=Compact()),
}
"""The faults of a call, by name."""

WATCH_FAULTS: Mapping[str, FaultRule] = {
    "cut": FaultRule(action=Cut()),
    "silent": FaultRule(action=Silence()),
    "event twice": FaultRule(action=Duplicate()),
    "410": FaultRule(action=Expire()),
}
"""The faults of a watch that is about to send an event, by name."""

_QUIET = 2 * SILENCE_SECONDS


async def disturb_every_call(
    scenario: Scenario, faults: Mapping[str, FaultRule] = CALL_FAULTS, *, sample: Sample | None = None
) -> SweepReport:
    """Run the scenario once for each call on objects and each fault, or for a sample of them."""
    reference = await run_scenario(scenario, quiet=_QUIET)
    points = []
    seen: dict[tuple[str, str], int] = {}
    for record in reference.records:
        if record.verb == "watch" or record.resource in SIDE_WRITES or not record.resource:
            continue
        call = (record.verb, record.resource)
        seen[call] = seen.get(call, 0) + 1
        points += [_Point(name, fault, *call, seen[call]) for name, fault in faults.items()]
    return await _sweep(scenario, reference, points, "faults at calls", sample)


async def disturb_every_watch(
    scenario: Scenario,
    faults: Mapping[str, FaultRule] = WATCH_FAULTS,
    *,
    events: int = 10,
    sample: Sample | None = None,
) -> SweepReport:
    """Run the scenario once for each fault at each of the first events of each watch, or for a sample."""
    reference = await run_scenario(scenario, quiet=_QUIET)
    resources = dict.fromkeys(record.resource for record in reference.records if record.verb == "watch")
    points = [
        _Point(name, fault, "watch", resource, number)
        for resource in resources
        for number in range(1, events + 1)
        for name, fault in faults.items()
    ]
    return await _sweep(scenario, reference, points, "faults at watch events", sample)


class _Point(msgspec.Struct, frozen=True):
    name: str
    fault: FaultRule
    verb: str
    resource: str
    number: int

    def __str__(self) -> str:
        return f"{self.name} at {self.verb} {self.resource} number {self.number}"

    def arm(self, plan: FaultPlan, _: Harness) -> None:
        target = {"verb": self.verb, "resource": self.resource, "client": CLIENT, "nth": self.number}
        plan.add(msgspec.structs.replace(self.fault, seen=0, fired=0, **target))


async def _sweep(
    scenario: Scenario, reference: ScenarioOutcome, points: Sequence[_Point], kind: str, sample: Sample | None
) -> SweepReport:
    async def difference_at(point: _Point) -> str:
        return difference(reference, await run_scenario(scenario, point.arm, quiet=_QUIET))

    return await run_points(points, difference_at, kind=kind, sample=sample)
