"""Scenarios: steps that run on their own cluster, with or without faults, and how two outcomes differ.

Everything runs on virtual time, so hundreds of runs take seconds, and each one can be repeated exactly.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from kapsa.devcluster import DevCluster, FaultPlan, ObjectChange, VirtualClock
from kapsa.devcluster.faults import RequestRecord
from kapsa.runtime.operator.operator import Operator
from kapsa.runtime.testing._harness import Harness

__all__ = [
    "CLIENT",
    "SIDE_WRITES",
    "Arm",
    "Scenario",
    "ScenarioOutcome",
    "ScenarioRun",
    "StepHooks",
    "difference",
    "difference_in_state",
    "run_scenario",
]

CLIENT = "operator"
"""The name of the scenario's operator in the fault plan."""
SIDE_WRITES = {"leases", "events"}
"""Resources that an operator writes alongside its work. They differ between runs and do not count."""

Step = Callable[[Harness], Awaitable[None]]
Arm = Callable[[FaultPlan, Harness], None]
"""Prepares the faults of a run."""


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """An operator, and the steps that sweeps run again and again."""

    operator: Callable[[], Operator]
    """Creates the operator: a new one for each start, as in a new process."""
    prepare: Step
    """Creates CRDs and other objects before the operator starts."""
    steps: Sequence[Step] = ()
    """Changes that users make, one after the other. The cluster settles after each."""
    ignore: Sequence[str] = ()
    """Resources (plurals) to leave out of the comparison."""
    horizon: float = 600.0
    """Seconds that delayed keys get to change something, as in `Harness.settle`."""


class ScenarioRun(msgspec.Struct):
    """A scenario that is running."""

    harness: Harness
    plan: FaultPlan
    scenario: Scenario

    async def start(self) -> None:
        """Start the operator."""
        await self.harness.start(self.scenario.operator(), name=CLIENT)

    async def kill(self) -> None:
        """Kill the operator."""
        await self.harness.kill(CLIENT)


class StepHooks:
    """Hooks around the steps of a scenario. The start is number 0, the first step number 1."""

    async def before(self, number: int, run: ScenarioRun) -> None:
        """Run before the step."""

    async def after(self, number: int, run: ScenarioRun) -> None:
        """Run right after the step, before the operator can react to it."""

    async def settled(self, number: int, run: ScenarioRun) -> None:
        """Run once the cluster has settled after the step."""


class ScenarioOutcome(msgspec.Struct):
    """The outcome of a scenario."""

    state: dict[str, Any]
    created: Counter[str]
    deleted: Counter[str]
    records: list[RequestRecord]
    """All requests of the operator, in order."""
    writes_at_rest: int
    """Writes in the ten minutes after the cluster had settled."""

    @property
    def writes(self) -> list[RequestRecord]:
        """The write requests of the operator."""
        return [record for record in self.records if record.is_write]


async def run_scenario(
    scenario: Scenario,
    arm: Arm | None = None,
    *,
    quiet: float = 30.0,
    hooks: StepHooks | None = None,
) -> ScenarioOutcome:
    """Run a scenario on a cluster of its own. Needs a virtual-time loop.

    A step is complete once nothing has changed for `quiet` seconds: more than any fault can hide a change.
    """
    plan = FaultPlan()
    clock = VirtualClock()
    hooks = hooks or StepHooks()
    async with DevCluster(clock=clock, faults=plan, http=False, seed=1) as cluster:
        harness = Harness(cluster, clock=clock)
        created, deleted = _count_creates_and_deletes(cluster, {*SIDE_WRITES, *scenario.ignore})
        restarter = asyncio.create_task(_restart_after_crashes(harness, scenario, plan))
        try:
            await scenario.prepare(harness)
            if arm is not None:
                arm(plan, harness)
            run = ScenarioRun(harness, plan, scenario)
            await run.start()
            await harness.settle(quiet=quiet, horizon=scenario.horizon)
            await hooks.settled(0, run)
            for number, step in enumerate(scenario.steps, start=1):
                await hooks.before(number, run)
                await step(harness)
                await hooks.after(number, run)
                await harness.settle(quiet=quiet, horizon=scenario.horizon)
                await hooks.settled(number, run)
            records = [record for record in plan.records if record.client == CLIENT]
            done = _work(plan)
            await clock.sleep(600)
            return ScenarioOutcome(_state(cluster, scenario), created, deleted, records, _work(plan) - done)
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


def _count_creates_and_deletes(cluster: DevCluster, ignore: set[str]) -> tuple[Counter[str], Counter[str]]:
    """Count how often each object is created and deleted."""
    counters: dict[str, Counter[str]] = {"ADDED": Counter(), "DELETED": Counter()}

    def count(change: ObjectChange) -> None:
        if change.type in counters and change.resource not in ignore:
            counters[change.type][f"{change.resource} {_masked_name(change.key)}"] += 1

    cluster.on_change(count)
    return counters["ADDED"], counters["DELETED"]


_GENERATED = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5,10}(?=-|$)")


def _masked_name(name: str) -> str:
    """Replace the random or hashed suffix of a name by an asterisk."""
    return _GENERATED.sub("-*", name)


def _state(cluster: DevCluster, scenario: Scenario) -> dict[str, Any]:
    """Return all objects without the values that differ between equal runs: UIDs, versions, times."""
    objects: dict[str, list[Any]] = {}
    skipped = {*SIDE_WRITES, *scenario.ignore}
    for snapshot in cluster.objects():
        if snapshot.resource not in skipped:
            name = f"{snapshot.resource} {_masked_name(snapshot.key)}"
            objects.setdefault(name, []).append(_masked(snapshot.object))
    # Objects whose names differ only in a random suffix are compared as a set.
    return {name: sorted(each, key=msgspec.json.encode) for name, each in objects.items()}


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
"""The server allocates these in the order of requests.

The operator decides only whether a Service has one.
"""


def _masked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _masked(item) for key, item in value.items() if not _is_volatile(key, item)}
    if isinstance(value, list):
        return [_masked(item) for item in value if not _is_time(item)]
    return _masked_name(_IDENTITY.sub("*", value)) if isinstance(value, str) else value


def _is_volatile(key: str, value: Any) -> bool:
    return key in _VOLATILE or (key in _ALLOCATED and "None" not in value) or _is_time(value)


_IDENTITY = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
"""A UID. Operators also keep them in labels and statuses."""


def _is_time(value: Any) -> bool:
    return (
        isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", value) is not None
    )


def difference(reference: ScenarioOutcome, outcome: ScenarioOutcome) -> str:
    """Describe the first difference; empty if there is none."""
    return _difference_in_counts(reference, outcome) or difference_in_state(reference, outcome)


def _difference_in_counts(reference: ScenarioOutcome, outcome: ScenarioOutcome) -> str:
    for event, before, after in (
        ("created", reference.created, outcome.created),
        ("deleted", reference.deleted, outcome.deleted),
    ):
        for name in sorted({*before, *after}):
            if before[name] != after[name]:
                return f"{name} was {event} {after[name]} times instead of {before[name]}"
    return ""


def difference_in_state(reference: ScenarioOutcome, outcome: ScenarioOutcome) -> str:
    """Describe the first difference of the end states; empty if there is none."""
    for name in sorted({*reference.state, *outcome.state}):
        old, new = reference.state.get(name), outcome.state.get(name)
        if old != new:
            return f"{name}: {_first_difference(old, new)}"
    if outcome.writes_at_rest:
        return f"{outcome.writes_at_rest} writes in ten minutes after the cluster had settled"
    return ""


def _first_difference(old: Any, new: Any, path: str = "") -> str:
    """Describe the first difference, such as `.spec.replicas ended as 2 instead of 3`."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            if old.get(key) != new.get(key):
                return _first_difference(old.get(key), new.get(key), f"{path}.{key}")
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            if before != after:
                return _first_difference(before, after, f"{path}[{index}]" if len(old) > 1 else path)
    return f"{path or 'object'} ended as {new} instead of {old}"
