"""Scenarios: a story played on a fresh cluster, undisturbed or not, and whether two endings are the same.

Everything runs on virtual time, so hundreds of endings take seconds, and each one can be played again.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from kapsa.devcluster import DevCluster, FaultPlan, VirtualClock
from kapsa.devcluster.faults import RequestRecord
from kapsa.runtime.operator.operator import Operator
from kapsa.runtime.testing._harness import Harness

__all__ = [
    "CLIENT",
    "SIDE_WRITES",
    "Arm",
    "Ending",
    "Interlude",
    "Scenario",
    "ScenarioRun",
    "difference",
    "difference_in_the_end",
    "play",
]

CLIENT = "operator"
"""The name under which the fault plan knows the operator of a scenario."""
SIDE_WRITES = {"leases", "events"}
"""What an operator writes beside its work; it differs from run to run and does not count."""

Step = Callable[[Harness], Awaitable[None]]
Arm = Callable[[FaultPlan, Harness], None]
"""Prepares what is to go wrong."""


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """What is played, again and again."""

    operator: Callable[[], Operator]
    """Makes the operator: a fresh one for each start, as a new process has it."""
    prepare: Step
    """Installs CRDs and whatever else is there before the operator starts."""
    steps: Sequence[Step] = ()
    """What people do to it, one after the other; the cluster settles after each."""
    ignore: Sequence[str] = ()
    """Resources (plurals) that do not belong to the end state."""
    horizon: float = 600.0
    """Seconds in which whatever comes back by itself must have done what it can, as in `Harness.settle`."""


class ScenarioRun(msgspec.Struct):
    """Where a scenario is being played."""

    harness: Harness
    plan: FaultPlan
    scenario: Scenario

    async def start(self) -> None:
        """The operator begins."""
        await self.harness.start(self.scenario.operator(), name=CLIENT)

    async def kill(self) -> None:
        """The operator dies."""
        await self.harness.kill(CLIENT)


class Interlude:
    """What happens around the steps of a scenario. The start is number 0, the first step number 1."""

    async def before(self, number: int, run: ScenarioRun) -> None:
        """The step is about to be taken."""

    async def after(self, number: int, run: ScenarioRun) -> None:
        """The step has been taken, and nobody has had time to do anything about it."""

    async def settled(self, number: int, run: ScenarioRun) -> None:
        """Everything that the step caused is done."""


class Ending(msgspec.Struct):
    """How a scenario ended."""

    state: dict[str, Any]
    created: Counter[str]
    deleted: Counter[str]
    records: list[RequestRecord]
    """Every request of the operator, in order."""
    writes_at_rest: int
    """Writes in ten minutes after everything was done."""

    @property
    def writes(self) -> list[RequestRecord]:
        return [record for record in self.records if record.is_write]


async def play(
    scenario: Scenario,
    arm: Arm | None = None,
    *,
    quiet: float = 30.0,
    interlude: Interlude | None = None,
) -> Ending:
    """Play a scenario on a cluster of its own. Needs a virtual-time loop.

    `quiet` is how long nothing may change before a step counts as done: longer than any fault hides it.
    """
    plan = FaultPlan()
    clock = VirtualClock()
    interlude = interlude or Interlude()
    async with DevCluster(clock=clock, faults=plan, http=False, seed=1) as cluster:
        harness = Harness(cluster, clock=clock)
        created, deleted = _count_life_cycles(cluster, {*SIDE_WRITES, *scenario.ignore})
        restarter = asyncio.create_task(_restart_after_crashes(harness, scenario, plan))
        try:
            await scenario.prepare(harness)
            if arm is not None:
                arm(plan, harness)
            run = ScenarioRun(harness, plan, scenario)
            await run.start()
            await harness.settle(quiet=quiet, horizon=scenario.horizon)
            await interlude.settled(0, run)
            for number, step in enumerate(scenario.steps, start=1):
                await interlude.before(number, run)
                await step(harness)
                await interlude.after(number, run)
                await harness.settle(quiet=quiet, horizon=scenario.horizon)
                await interlude.settled(number, run)
            records = [record for record in plan.records if record.client == CLIENT]
            done = _work(plan)
            await clock.sleep(600)
            return Ending(_state(cluster, scenario), created, deleted, records, _work(plan) - done)
        finally:
            restarter.cancel()
            await asyncio.gather(restarter, return_exceptions=True)
            await harness.close()


async def _restart_after_crashes(harness: Harness, scenario: Scenario, plan: FaultPlan) -> None:
    while True:
        await plan.crash_event(CLIENT).wait()
        await harness.kill(CLIENT)
        await asyncio.sleep(1)
        plan.revive(CLIENT)
        await harness.start(scenario.operator(), name=CLIENT)


def _work(plan: FaultPlan) -> int:
    return sum(record.resource not in SIDE_WRITES for record in plan.writes(CLIENT))


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
    found: dict[str, list[Any]] = {}
    skipped = {*SIDE_WRITES, *scenario.ignore}
    for collection in cluster.server.backend.store.collections():
        if collection.key[1] in skipped:
            continue
        for stored in collection.current():
            name = f"{collection.key[1]} {_masked_name(stored.key)}"
            found.setdefault(name, []).append(_masked(msgspec.json.decode(stored.body)))
    # Objects whose names differ in a random ending only are compared as a set.
    return {name: sorted(each, key=msgspec.json.encode) for name, each in found.items()}


_VOLATILE = {
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "managedFields",
    "generation",
    "observedGeneration",
    "containerID",
    "podIP",
    "podIPs",
}
_ALLOCATED = {"clusterIP", "clusterIPs"}
"""The server gives these out in the order in which it is asked. Only whether a Service has one is told by its operator."""


def _masked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _masked(item) for key, item in value.items() if not _is_volatile(key, item)}
    if isinstance(value, list):
        return [_masked(item) for item in value if not _is_time(item)]
    return _masked_name(_IDENTITY.sub("*", value)) if isinstance(value, str) else value


def _is_volatile(key: str, value: Any) -> bool:
    return key in _VOLATILE or (key in _ALLOCATED and "None" not in value) or _is_time(value)


_IDENTITY = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
"""A UID, which operators also keep in labels and statuses of their own."""


def _is_time(value: Any) -> bool:
    return (
        isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", value) is not None
    )


def difference(reference: Ending, outcome: Ending) -> str:
    """What is different, in words; empty if nothing is."""
    return _difference_in_life_cycles(reference, outcome) or difference_in_the_end(reference, outcome)


def _difference_in_life_cycles(reference: Ending, outcome: Ending) -> str:
    for what, before, after in (
        ("created", reference.created, outcome.created),
        ("deleted", reference.deleted, outcome.deleted),
    ):
        for name in sorted({*before, *after}):
            if before[name] != after[name]:
                return f"{name} was {what} {after[name]} times instead of {before[name]}"
    return ""


def difference_in_the_end(reference: Ending, outcome: Ending) -> str:
    """What is different in the end, however it came about."""
    for name in sorted({*reference.state, *outcome.state}):
        old, new = reference.state.get(name), outcome.state.get(name)
        if old != new:
            return f"{name}: {_first_difference(old, new)}"
    if outcome.writes_at_rest:
        return f"{outcome.writes_at_rest} writes in ten minutes after everything was done"
    return ""


def _first_difference(old: Any, new: Any, path: str = "") -> str:
    """Where two states part, as `.spec.replicas ended as 2 instead of 3`."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            if old.get(key) != new.get(key):
                return _first_difference(old.get(key), new.get(key), f"{path}.{key}")
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            if before != after:
                return _first_difference(before, after, f"{path}[{index}]" if len(old) > 1 else path)
    return f"{path or 'it'} ended as {new} instead of {old}"
