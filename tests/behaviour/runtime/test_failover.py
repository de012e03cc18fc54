"""A leader never works from a cache that missed what another leader wrote.

Replica A leads and is cut off. B leads, creates one child with a generated name for each resource, and dies. A's
connections return one by one: to the lease, and to each of its watches, in any order, while B still writes or after it.
The kind of the children is declared, or added by `ctx.watch`. A name does not protect here: a
leader with an old cache would create every child a second time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Literal

import msgspec
import pytest

from kapsa.devcluster import DevCluster, VirtualClock
from kapsa.devcluster.faults import Answer, Cut, Drop, Expire, FaultPlan, FaultRule
from kapsa.runtime import Context, Operator
from kapsa.runtime.testing import Harness, Sample
from kapsa.runtime.testing._sweep_report import run_points
from tests.runtime.sample_app import App, Recorder, app

pytestmark = [pytest.mark.virtual_time, pytest.mark.timeout(900)]  # 480 orders in one test, in --full

RESOURCES = 5
CUT_OFF = ("leases", "apps", "configmaps", "secrets")
PAUSES = (7.0, 40.0)
"""Seconds between two connections that return: within a lease, and past it."""


class Order(msgspec.Struct, frozen=True):
    """One order of what returns to A, and what disturbs it in between or once B is dead."""

    returns: tuple[str, ...]
    b_dies_after: int
    pause: float
    disturbance: str
    disturbed: Literal["from the first return", "after B"]
    watch: Literal["declared", "added"]

    def __str__(self) -> str:
        steps = list(self.returns)
        steps.insert(self.b_dies_after, "B dies")
        return f"{', '.join(steps)}; {self.pause:.0f} s apart; {self.disturbance} {self.disturbed}; {self.watch} watch"


DISTURBANCES: dict[str, Callable[[FaultPlan], object]] = {
    "undisturbed": lambda faults: None,
    "409 for the lease": lambda faults: faults.add(
        FaultRule(action=Answer(code=409, reason="Conflict"), verb="update", resource="leases", client="a")
    ),
    "410 for a watch": lambda faults: faults.order(Expire(), client="a"),
    "500 for the first lists": lambda faults: faults.add(
        FaultRule(action=Answer(code=500), verb="watch", client="a", times=3)
    ),
}
DISTURBED: tuple[Literal["from the first return", "after B"], ...] = ("from the first return", "after B")
WATCHES: tuple[Literal["declared", "added"], ...] = ("declared", "added")
ORDERS = [
    # Each order gets two of the four: both times of the disturbance, and both watches.
    Order(returns, b_dies_after, pause, disturbance, disturbed, WATCHES[(number + shift) % 2])
    for shift, returns in enumerate(itertools.permutations(CUT_OFF))
    for b_dies_after in range(len(CUT_OFF) + 1)
    for pause in PAUSES
    for disturbance in DISTURBANCES
    for number, disturbed in enumerate(DISTURBED)
]


async def one_child(resource: App, ctx: Context[App]) -> None:
    ctx.get("v1/Secret", "settings")
    await make_child(resource, ctx)


async def one_child_of_an_added_kind(resource: App, ctx: Context[App]) -> None:
    await ctx.watch("v1/Secret")
    await ctx.watch("v1/ConfigMap")
    await make_child(resource, ctx)


async def make_child(resource: App, ctx: Context[App]) -> None:
    if not ctx.children("v1/ConfigMap"):
        await ctx.create(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": f"{resource.name}-"}}
        )


def replica(order: Order) -> Operator:
    if order.watch == "declared":
        controller = Recorder(one_child, owns=("v1/ConfigMap",), reads=("v1/Secret",))
    else:
        controller = Recorder(one_child_of_an_added_kind)
    return Operator(controllers=[controller], leader_election="lock")


async def children_after(order: Order) -> str:
    """Play one order. Return how the end differs from one child for each resource; empty if it does not."""
    faults, clock = FaultPlan(), VirtualClock()
    async with DevCluster(clock=clock, http=False, faults=faults, seed=1) as cluster:
        harness = Harness(cluster, clock=clock)
        try:
            await harness.install(App)
            await harness.start(replica(order), name="a")
            await harness.clock.sleep(5)
            await harness.start(replica(order), name="b")
            await harness.apply(app("seed"))
            await harness.clock.sleep(5)
            rules = {
                resource: faults.add(FaultRule(action=Drop(), resource=resource, client="a", times=0))
                for resource in CUT_OFF
            }
            faults.order(Cut(), client="a")
            await harness.clock.sleep(20)
            names = [f"app-{number}" for number in range(RESOURCES)]
            await harness.apply(*(app(name) for name in names))
            await harness.clock.sleep(10)
            for number, resource in enumerate(order.returns):
                if number == order.b_dies_after:
                    await harness.kill("b")
                if order.disturbed != "after B" or number == order.b_dies_after:
                    DISTURBANCES[order.disturbance](faults)
                faults.remove(rules[resource])
                # B writes this child if it is alive, A otherwise: as soon as it may.
                names.append(f"late-{number}")
                await harness.apply(app(names[-1]))
                await harness.clock.sleep(order.pause)
            if order.b_dies_after == len(order.returns):
                await harness.kill("b")
                DISTURBANCES[order.disturbance](faults)
            await harness.clock.sleep(180)  # A takes the lease, and no child is missing
            children = (await harness.client.list("v1/ConfigMap", namespace="default")).items
            creates = [
                each for each in faults.writes() if (each.verb, each.resource) == ("create", "configmaps")
            ]
        finally:
            await harness.close()
    made = sorted(each["metadata"]["generateName"] for each in children if "generateName" in each["metadata"])
    expected = sorted(f"{name}-" for name in ("seed", *names))
    if made != expected:
        return f"children: {made}"
    return "" if sum(each.client in "ab" for each in creates) == len(expected) else f"{len(creates)} creates"


@pytest.mark.parametrize("first", CUT_OFF)
async def test_no_order_of_failover_makes_a_child_twice(
    first: str, sample: Sample | None, record_property: Callable[[str, object], None]
) -> None:
    orders = [order for order in ORDERS if order.returns[0] == first]
    report = await run_points(orders, children_after, kind="orders of a failover", sample=sample)
    record_property("sweep", f"{first} back first: {report}")
    assert not report.failures, str(report)
