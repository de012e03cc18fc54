"""A leader never works from a cache that missed what another leader wrote.

Replica A leads and is cut off. B leads, creates one child with a generated name for each resource, and dies. A's
connections return one by one: to the lease, and to each of its watches, in any order. A name does not protect here: a
leader with an old cache would create every child a second time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import msgspec
import pytest

from kapsa.devcluster import DevCluster, VirtualClock
from kapsa.devcluster.faults import Answer, Cut, Drop, Expire, FaultPlan, FaultRule
from kapsa.runtime import Context, Operator
from kapsa.runtime.testing import Harness, Sample
from kapsa.runtime.testing._sweep_report import run_points
from tests.runtime.sample_app import App, Recorder, app

pytestmark = [pytest.mark.virtual_time, pytest.mark.timeout(600)]  # 240 orders in one test, in --full

RESOURCES = 5
CUT_OFF = ("leases", "apps", "configmaps", "secrets")
PAUSES = (7.0, 40.0)
"""Seconds between two connections that return: within a lease, and past it."""


class Order(msgspec.Struct, frozen=True):
    """One order of what returns to A, and what disturbs it in between."""

    returns: tuple[str, ...]
    b_dies_after: int
    pause: float
    disturbance: str

    def __str__(self) -> str:
        steps = list(self.returns)
        steps.insert(self.b_dies_after, "B dies")
        return f"{', '.join(steps)}; {self.pause:.0f} s apart; {self.disturbance}"


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
ORDERS = [
    Order(returns, b_dies_after, pause, disturbance)
    for returns in itertools.permutations(CUT_OFF)
    for b_dies_after in range(len(CUT_OFF) + 1)
    for pause in PAUSES
    for disturbance in DISTURBANCES
]


async def one_child(resource: App, ctx: Context[App]) -> None:
    ctx.get("v1/Secret", "settings")
    if not ctx.children("v1/ConfigMap"):
        await ctx.create(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": f"{resource.name}-"}}
        )


def replica() -> Operator:
    controller = Recorder(one_child, owns=("v1/ConfigMap",), reads=("v1/Secret",))
    return Operator(controllers=[controller], leader_election="lock")


async def children_after(order: Order) -> str:
    """Play one order. Return how the end differs from one child for each resource; empty if it does not."""
    faults, clock = FaultPlan(), VirtualClock()
    async with DevCluster(clock=clock, http=False, faults=faults, seed=1) as cluster:
        harness = Harness(cluster, clock=clock)
        try:
            await harness.install(App)
            await harness.start(replica(), name="a")
            await harness.clock.sleep(5)
            await harness.start(replica(), name="b")
            await harness.clock.sleep(5)
            rules = {
                resource: faults.add(FaultRule(action=Drop(), resource=resource, client="a", times=0))
                for resource in CUT_OFF
            }
            faults.order(Cut(), client="a")
            await harness.clock.sleep(20)
            await harness.apply(*(app(f"app-{number}") for number in range(RESOURCES)))
            await harness.clock.sleep(10)
            for number, resource in enumerate(order.returns):
                if number == order.b_dies_after:
                    await harness.kill("b")
                    DISTURBANCES[order.disturbance](faults)
                faults.remove(rules[resource])
                await harness.clock.sleep(order.pause)
            if order.b_dies_after == len(order.returns):
                await harness.kill("b")
                DISTURBANCES[order.disturbance](faults)
            await harness.settle()
            children = (await harness.client.list("v1/ConfigMap", namespace="default")).items
            creates = [
                each for each in faults.writes() if (each.verb, each.resource) == ("create", "configmaps")
            ]
        finally:
            await harness.close()
    names = sorted(
        each["metadata"]["generateName"] for each in children if "generateName" in each["metadata"]
    )
    expected = [f"app-{number}-" for number in range(RESOURCES)]
    if names != expected:
        return f"{len(names)} children instead of {RESOURCES}"
    return "" if sum(each.client in "ab" for each in creates) == RESOURCES else f"{len(creates)} creates"


@pytest.mark.parametrize("first", CUT_OFF)
async def test_no_order_of_failover_makes_a_child_twice(
    first: str, sample: Sample | None, record_property: Callable[[str, object], None]
) -> None:
    orders = [order for order in ORDERS if order.returns[0] == first]
    report = await run_points(orders, children_after, kind="orders of a failover", sample=sample)
    record_property("sweep", f"{first} back first: {report}")
    assert not report.failures, str(report)
