"""Crash at every write: the operator dies at each write of a reference run, before, between and after, and restarts.

For each point the end state, and how often each object was created and deleted, must equal those of the undisturbed
run. Everything runs on virtual time, so hundreds of crashes take seconds; a failure names its point and replays.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

import msgspec

from kapsa.devcluster import DevCluster, FaultPlan, VirtualClock
from kapsa.devcluster.faults import Crash, Record, Rule
from kapsa.runtime.operator import Operator
from kapsa.runtime.testing.harness import Harness, RecordedCall

__all__ = ["CrashPoint", "CrashReport", "Scenario", "crash_at_every_write"]

Moment = Literal["before", "commit", "after"]
"""Before the write, after its commit and before the response, after the response."""
MOMENTS: tuple[Moment, ...] = ("before", "commit", "after")

_CLIENT = "operator"
_SIDE_WRITES = {"leases", "events"}

Step = Callable[[Harness], Awaitable[None]]


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """What is run, again and again."""

    operator: Callable[[], Operator]
    """Makes the operator: a fresh one for each start, as a new process has it."""
    prepare: Step
    """Installs CRDs and whatever else is there before the operator starts."""
    steps: Sequence[Step] = ()
    """What people do to it, one after the other; the cluster settles after each."""
    ignore: Sequence[str] = ()
    """Resources (plurals) that do not belong to the end state."""


class CrashPoint(msgspec.Struct, frozen=True):
    """Where the operator dies."""

    write: int
    """The number of the operator's write, counted from 1."""
    moment: Moment
    what: str = ""

    def __str__(self) -> str:
        return f"{self.moment} write {self.write} ({self.what})"


class _Outcome(msgspec.Struct):
    state: dict[str, Any]
    created: Counter[str]
    deleted: Counter[str]
    writes: list[Record]
    writes_at_rest: int


class CrashReport(msgspec.Struct, frozen=True):
    """What came of it."""

    points: int
    writes: int
    failures: dict[str, str]
    """Crash point to what was different."""

    def __str__(self) -> str:
        verdict = "all end like the undisturbed run" if not self.failures else f"{len(self.failures)} FAILED"
        lines = "".join(f"\n  {point}: {why}" for point, why in self.failures.items())
        return f"{self.points} crash points over {self.writes} writes: {verdict}{lines}"


async def crash_at_every_write(scenario: Scenario, *, moments: Sequence[Moment] = MOMENTS) -> CrashReport:
    """Run the scenario undisturbed, then once for each write and moment. Needs a virtual-time loop."""
    reference = await _play(scenario, None)
    failures: dict[str, str] = {}
    points = [
        CrashPoint(number, moment, f"{record.verb} {record.resource} {record.namespace}/{record.name}")
        for number, record in enumerate(reference.writes, start=1)
        if record.resource not in _SIDE_WRITES
        for moment in moments
    ]
    for point in points:
        try:
            outcome = await _play(scenario, point)
        except AssertionError as error:
            failures[str(point)] = str(error)
            continue
        if difference := _difference(reference, outcome):
            failures[str(point)] = difference
    return CrashReport(len(points), len(points) // max(1, len(moments)), failures)


async def _play(scenario: Scenario, point: CrashPoint | None) -> _Outcome:
    plan = FaultPlan()
    clock = VirtualClock()
    async with DevCluster(clock=clock, faults=plan, http=False, seed=1) as cluster:
        harness = Harness(cluster, clock=clock)
        created, deleted = _count_life_cycles(cluster, {*_SIDE_WRITES, *scenario.ignore})
        try:
            await scenario.prepare(harness)
            if point is not None:
                _arm(point, plan, harness)
            await harness.start(scenario.operator(), name=_CLIENT)
            restarter = asyncio.create_task(_restart_after_crash(harness, scenario, plan))
            await harness.settle()
            for step in scenario.steps:
                await step(harness)
                await harness.settle()
            restarter.cancel()
            await asyncio.gather(restarter, return_exceptions=True)
            writes, main = list(plan.writes(_CLIENT)), _main_writes(plan)
            await clock.sleep(600)
            return _Outcome(_state(cluster, scenario), created, deleted, writes, _main_writes(plan) - main)
        finally:
            await harness.close()


def _arm(point: CrashPoint, plan: FaultPlan, harness: Harness) -> None:
    if point.moment != "after":
        when: Literal["before", "after"] = "before" if point.moment == "before" else "after"
        plan.add(Rule(action=Crash(), verb="write", client=_CLIENT, nth=point.write, when=when))
        return
    seen = 0

    def watch(recorded: RecordedCall) -> None:
        nonlocal seen
        if recorded.call.writes:
            seen += 1
            if seen == point.write:
                plan.crash(_CLIENT)

    harness.observers.append(watch)


async def _restart_after_crash(harness: Harness, scenario: Scenario, plan: FaultPlan) -> None:
    await plan.crash_event(_CLIENT).wait()
    await harness.kill(_CLIENT)
    await asyncio.sleep(1)
    plan.revive(_CLIENT)
    await harness.start(scenario.operator(), name=_CLIENT)


def _main_writes(plan: FaultPlan) -> int:
    return sum(record.resource not in _SIDE_WRITES for record in plan.writes(_CLIENT))


# -- comparing -------------------------------------------------------------------------------------------------


def _count_life_cycles(cluster: DevCluster, ignore: set[str]) -> tuple[Counter[str], Counter[str]]:
    """Count how often each object is created and deleted, from the store itself."""
    counters: dict[str, Counter[str]] = {"ADDED": Counter(), "DELETED": Counter()}

    def follow(collection: Any, change: Any) -> None:
        resource = collection.key[1]
        if change.type in counters and resource not in ignore:
            counters[change.type][f"{resource} {_masked_name(change.object.key)}"] += 1

    cluster.server.backend.store.listeners.append(follow)
    return counters["ADDED"], counters["DELETED"]


_GENERATED = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5,10}(?=-|$)")


def _masked_name(name: str) -> str:
    """Names with a random or hashed ending count by what comes before it."""
    return _GENERATED.sub("-*", name)


def _state(cluster: DevCluster, scenario: Scenario) -> dict[str, Any]:
    """All objects, without what differs between two runs of the same: identities, versions, times."""
    found = {}
    skipped = {*_SIDE_WRITES, *scenario.ignore}
    for collection in cluster.server.backend.store.collections():
        if collection.key[1] in skipped:
            continue
        for stored in collection.current():
            found[f"{collection.key[1]} {_masked_name(stored.key)}"] = _masked(
                msgspec.json.decode(stored.body)
            )
    return found


_VOLATILE = {
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "managedFields",
    "generation",
    "observedGeneration",
}


def _masked(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _masked(item) for key, item in value.items() if key not in _VOLATILE and not _is_time(item)
        }
    if isinstance(value, list):
        return [_masked(item) for item in value if not _is_time(item)]
    return _masked_name(value) if isinstance(value, str) else value


def _is_time(value: Any) -> bool:
    return (
        isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", value) is not None
    )


def _difference(reference: _Outcome, outcome: _Outcome) -> str:
    """What is different, in words; empty if nothing is."""
    for what, before, after in (
        ("created", reference.created, outcome.created),
        ("deleted", reference.deleted, outcome.deleted),
    ):
        for name in sorted({*before, *after}):
            if before[name] != after[name]:
                return f"{name} was {what} {after[name]} times instead of {before[name]}"
    for name in sorted({*reference.state, *outcome.state}):
        old, new = reference.state.get(name), outcome.state.get(name)
        if old != new:
            return f"{name} ended as {new} instead of {old}"
    if outcome.writes_at_rest:
        return f"{outcome.writes_at_rest} writes in ten minutes after everything was done"
    return ""
