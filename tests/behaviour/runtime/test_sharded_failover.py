"""Replicas that share the keys come, go and lose their connections in every order; each key has one of them at a time.

The children have generated names: two replicas on one key, or one with an old cache, would create a second one.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import Callable
from typing import Literal

import msgspec
import pytest

from kapsa.devcluster import DevCluster, VirtualClock
from kapsa.devcluster.faults import Cut, Drop, FaultPlan, FaultRule
from kapsa.devcluster.real.proxy import FaultProxy
from kapsa.runtime import Client, Context, HttpTransport, Operator, RunningOperator, Sharding, StaticAccess
from kapsa.runtime.testing import Harness, Sample
from kapsa.runtime.testing._sweep_report import run_points
from tests.eventually import eventually
from tests.runtime.sample_app import App, Recorder, app

SHARDS = 4
SEED = 8
"""With these identities each of a, b and c has a shard, whichever of them are there."""
STEPS = (
    "c joins",
    "b goes",
    "a loses its leases",
    "a's leases are back",
    "a loses its watches",
    "a's watches are back",
)
WATCHES: tuple[Literal["declared", "added"], ...] = ("declared", "added")
FIRST_STEPS = ("c joins", "b goes", "a loses its leases", "a loses its watches")
WATCHED = {"declared": ("apps", "configmaps"), "added": ("configmaps",)}
"""The watches that a loses. That of an added kind alone: a list of the others proves nothing about it."""


class Order(msgspec.Struct, frozen=True):
    """One order of the steps, the seconds between them, how b goes, and how the kind of the children is watched."""

    steps: tuple[str, ...]
    pause: float
    end: Literal["stop", "kill"]
    watch: Literal["declared", "added"]

    def __str__(self) -> str:
        return f"{', '.join(self.steps)}; {self.pause:g} s apart; {self.end}; {self.watch} watch"


def possible(steps: tuple[str, ...]) -> bool:
    return all(
        steps.index(f"a loses its {what}") < steps.index(f"a's {what} are back")
        for what in ("leases", "watches")
    )


ORDERS = [
    # Within a lease and past it, in order and as a crash: each order gets one of the four.
    Order(steps, (7.0, 45.0)[number % 2], ("stop", "kill")[number // 2 % 2], watch)
    for watch in WATCHES
    for number, steps in enumerate(filter(possible, itertools.permutations(STEPS)))
]


class Keys:
    """The runs of all replicas at present, by key."""

    def __init__(self, watch: Literal["declared", "added"] = "declared") -> None:
        self.watch = watch
        self._running: Counter[str] = Counter()
        self.shared: set[str] = set()
        """The keys that had two runs at a time."""

    async def one_child(self, resource: App, ctx: Context[App]) -> None:
        self._running[resource.name] += 1
        if self._running[resource.name] > 1:
            self.shared.add(resource.name)
        try:
            if self.watch == "added":
                await ctx.watch("v1/ConfigMap")
            if not ctx.children("v1/ConfigMap"):
                await ctx.client.clock.sleep(1)
                metadata = {"generateName": f"{resource.name}-"}
                await ctx.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        finally:
            self._running[resource.name] -= 1


def replica(keys: Keys) -> Operator:
    owns = ("v1/ConfigMap",) if keys.watch == "declared" else ()
    return Operator(
        controllers=[Recorder(keys.one_child, owns=owns)],
        sharding=Sharding(name="apps", shards=SHARDS),
    )


class Play:
    """One order, played on a cluster of its own."""

    def __init__(self, order: Order, harness: Harness, faults: FaultPlan) -> None:
        self._order = order
        self._harness = harness
        self._faults = faults
        self._rules: dict[str, list[FaultRule]] = {}
        self.keys = Keys(order.watch)
        self.vacuous: list[str] = []
        """The losses of a that found it without a shard: they show nothing."""
        self.apps = 0

    async def run(self) -> None:
        """Start a and b, take the steps with a new resource after each, and let everything settle."""
        await self._harness.install(App)
        await self._harness.start(replica(self.keys), name="a")
        await self._harness.start(replica(self.keys), name="b")
        # Until b has its share: in a shard whose keys it ran before, a would still watch what their runs added.
        await self._harness.clock.sleep(60)
        for _ in range(8):  # in each shard, so that a watches what its runs add
            await self._add_app()
        await self._harness.clock.sleep(self._order.pause)
        for step in self._order.steps:
            await self._take(step)
            await self._add_app()
            await self._harness.clock.sleep(self._order.pause)
        await self._harness.clock.sleep(180)

    async def _add_app(self) -> None:
        await self._harness.apply(app(f"app-{self.apps}"))
        self.apps += 1

    async def _take(self, step: str) -> None:
        if step == "c joins":
            await self._harness.start(replica(self.keys), name="c")
        elif step == "b goes":
            await (self._harness.stop("b") if self._order.end == "stop" else self._harness.kill("b"))
        else:
            what = "leases" if "leases" in step else "watches"
            if "loses" in step and "leases" not in self._rules and not self._held_by_a():
                self.vacuous.append(step)
            self._cut(what) if "loses" in step else self._mend(what)

    def _held_by_a(self) -> list[int]:
        shards = self._harness.running["a"].shards
        return shards.held if shards is not None else []

    def _cut(self, what: str) -> None:
        resources = ("leases",) if what == "leases" else WATCHED[self._order.watch]
        verb = "" if what == "leases" else "watch"
        self._rules[what] = [
            self._faults.add(FaultRule(action=Drop(), resource=each, verb=verb, client="a", times=0))
            for each in resources
        ]
        if what == "watches":
            self._faults.order(Cut(), client="a")

    def _mend(self, what: str) -> None:
        for rule in self._rules[what]:
            self._faults.remove(rule)


async def difference_after(order: Order) -> str:
    """Return how the end differs from one child for each resource; empty if it does not."""
    faults, clock = FaultPlan(), VirtualClock()
    async with DevCluster(clock=clock, http=False, faults=faults, seed=1) as cluster:
        harness = Harness(cluster, clock=clock, seed=SEED)
        play = Play(order, harness, faults)
        overlaps: set[int] = set()
        watcher = asyncio.create_task(record_overlaps(harness, overlaps))
        try:
            await play.run()
            children = (await harness.client.list("v1/ConfigMap", namespace="default")).items
        finally:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)
            await harness.close()
    names = Counter(each["metadata"].get("generateName", "") for each in children)
    del names[""]
    expected = Counter({f"app-{number}-": 1 for number in range(play.apps)})
    if names != expected:
        return f"children: {sorted(names.elements())}"
    if play.vacuous:
        return f"a holds no shard when {', '.join(play.vacuous)}"
    if overlaps or play.keys.shared:
        return f"shards with two holders: {sorted(overlaps)}; keys with two runs: {sorted(play.keys.shared)}"
    return ""


async def record_overlaps(harness: Harness, overlaps: set[int]) -> None:
    """Record each shard that two replicas hold at the same time."""
    while True:
        held = Counter(
            index for run in harness.running.values() if run.shards is not None for index in run.shards.held
        )
        overlaps.update(index for index, holders in held.items() if holders > 1)
        await harness.clock.sleep(0.5)


@pytest.mark.long
@pytest.mark.virtual_time
@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", FIRST_STEPS)
async def test_no_order_of_replicas_that_come_go_and_lose_connections_gives_a_key_two_of_them(
    first: str, sample: Sample | None, record_property: Callable[[str, object], None]
) -> None:
    orders = [order for order in ORDERS if order.steps[0] == first]
    report = await run_points(
        orders, difference_after, kind="orders of replicas that share the keys", sample=sample
    )
    record_property("sweep", f"{first} first: {report}")
    assert not report.failures, str(report)


# -- in real time, on both engines ---------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_a_partition_and_a_crash_of_a_replica_leave_one_child_for_each_resource(
    cluster: DevCluster,
) -> None:
    namespace, plan = "sharded", FaultPlan()

    def operator() -> Operator:
        sharding = Sharding(
            name="apps",
            namespace=namespace,
            shards=SHARDS,
            lease_duration=6,
            renew_deadline=4,
            retry_period=1,
        )
        controller = Recorder(Keys().one_child, owns=("v1/ConfigMap",), max_concurrent_reconciles=5)
        return Operator(controllers=[controller], namespaces=[namespace], sharding=sharding)

    async with contextlib.AsyncExitStack() as stack:
        admin = await stack.enter_async_context(Client.connect(kubeconfig=cluster.kubeconfig))
        await admin.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}, force=True
        )
        for definition in operator().definitions():
            await admin.apply(definition, force=True)
        proxy = FaultProxy(cluster.url, cluster.kubeconfig_data, plan)
        await proxy.start()
        stack.push_async_callback(proxy.close)
        through_proxy = await stack.enter_async_context(Client(HttpTransport(StaticAccess(proxy.url))))
        direct = await stack.enter_async_context(Client.connect(kubeconfig=cluster.kubeconfig))
        one = await stack.enter_async_context(operator().running(through_proxy, identity="left", serve=False))
        two = await operator().start(direct, identity="right", serve=False)
        stack.push_async_callback(two.kill)
        await eventually(lambda: held(one, two), all, "shards on both replicas")

        await expect_one_child_each(admin, namespace, range(10))
        cut = plan.add(FaultRule(action=Drop(), times=0))
        plan.order(Cut())
        await expect_one_child_each(admin, namespace, range(20))
        await two.kill()
        plan.remove(cut)
        await expect_one_child_each(admin, namespace, range(30))


async def held(*runs: RunningOperator) -> list[list[int]]:
    return [run.shards.held for run in runs if run.shards is not None]


async def expect_one_child_each(client: Client, namespace: str, numbers: range) -> None:
    """Apply resources and wait for their children; fail if one has two."""
    for number in numbers:
        await client.apply(app(f"app-{number}", namespace=namespace), force=True, field_manager="person")

    async def read() -> Counter[str]:
        children = (await client.list("v1/ConfigMap", namespace=namespace)).items
        return Counter(
            each["metadata"]["generateName"] for each in children if "generateName" in each["metadata"]
        )

    expected = {f"app-{number}-" for number in numbers}
    made = await eventually(
        read, lambda each: set(each) == expected, f"{len(expected)} children", seconds=180
    )
    assert set(made.values()) == {1}
