"""Watches that are added while the operator runs, of kinds that a resource names."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from kapsa.devcluster.faults import Answer, Cut, Drop, FaultPlan, FaultRule
from kapsa.runtime import Context, CustomResource, Operator, Reads, Sharding, Spec, Status
from kapsa.runtime.controller import _runtime_watches
from kapsa.runtime.testing import Harness
from tests.runtime.sample_app import App, Recorder, app, config_map

pytestmark = pytest.mark.virtual_time

CONFIG_MAP = "v1/ConfigMap"


class GadgetSpec(Spec):
    size: int = 1


class Gadget(CustomResource[GadgetSpec, Status], group="example.com", version="v1"):
    """A kind that is installed late."""


async def follow_image(resource: App, ctx: Context[App]) -> None:
    """Watch the kind that the image names, and take the size of its object called `one`."""
    await ctx.watch(resource.spec.image)
    target: Any = ctx.get(resource.spec.image, "one", track=True)
    ctx.status.ready = -1 if target is None else int(target.get("data", target.get("spec"))["size"])


async def start(harness: Harness, *failures: list[str], **attributes: Any) -> Recorder:
    async def work(resource: App, ctx: Context[App]) -> None:
        try:
            await follow_image(resource, ctx)
        except Exception as error:
            failures[0].append(str(error))
            raise

    controller = Recorder(work, **attributes)
    await harness.install(App)
    await harness.start(Operator(controllers=[controller]))
    return controller


async def ready(harness: Harness, name: str = "web") -> int:
    status: int = (await harness.get(App, name)).status.ready
    return status


async def change(harness: Harness, size: str) -> None:
    await harness.apply(config_map("one", data={"size": size}, namespace="default"))


async def test_a_kind_that_a_resource_names_is_watched_and_its_changes_run_the_resource(
    harness: Harness,
) -> None:
    await change(harness, "3")
    controller = await start(harness)
    await harness.apply(app("web", image=CONFIG_MAP), app("other", image="v1/Secret"))
    await harness.settle()
    assert await ready(harness) == 3
    controller.runs.clear()
    await change(harness, "4")
    await harness.settle()
    assert await ready(harness) == 4
    assert controller.runs == ["web"]


async def test_a_kind_that_is_installed_later_is_watched_from_then_on(harness: Harness) -> None:
    await start(harness)
    await harness.apply(app("web", image="example.com/v1/Gadget"))
    await harness.settle()
    assert await ready(harness) == -1
    await harness.install(Gadget)
    gadget = {"apiVersion": "example.com/v1", "kind": "Gadget", "spec": {"size": 7}}
    await harness.apply({**gadget, "metadata": {"name": "one", "namespace": "default"}})
    await harness.settle()
    assert await ready(harness) == 7


async def test_a_kind_is_read_whole_although_another_controller_has_its_metadata_only(
    harness: Harness,
) -> None:
    metadata = Recorder(name="other", reads=(Reads(CONFIG_MAP, metadata_only=True),))
    whole = Recorder(follow_image)
    await harness.install(App)
    await change(harness, "3")
    await harness.start(Operator(controllers=[metadata, whole]))
    await harness.apply(app("web", image=CONFIG_MAP))
    await harness.settle()
    assert await ready(harness) == 3


async def test_a_restart_watches_again_what_resources_name(harness: Harness) -> None:
    await start(harness)
    await harness.apply(app("web", image=CONFIG_MAP))
    await harness.settle()
    await harness.kill()
    await change(harness, "5")
    await harness.start(Operator(controllers=[Recorder(follow_image)]))
    await harness.settle()
    assert await ready(harness) == 5


async def test_a_controller_watches_a_limited_number_of_kinds(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_runtime_watches, "_MOST", 1)
    failures: list[str] = []
    await start(harness, failures)
    await harness.apply(app("web", image=CONFIG_MAP))
    await harness.settle()
    await harness.apply(app("greedy", image="v1/Secret"))
    await harness.settle()
    assert failures == ["v1/Secret is not watched: 1 kinds are, which is the limit for one controller"]
    await change(harness, "6")
    await harness.settle()
    assert await ready(harness) == 6


async def test_a_kind_that_the_controller_owns_must_be_declared_as_watched(harness: Harness) -> None:
    failures: list[str] = []
    await start(harness, failures, owns=(CONFIG_MAP,))
    await harness.apply(app("web", image=CONFIG_MAP))
    await harness.settle()
    assert "Recorder declares ConfigMap already: write Watch('v1/ConfigMap') in its watches" in failures


async def test_a_kind_that_delivers_no_list_fails_the_run_and_not_the_operator(
    harness: Harness, faults: FaultPlan
) -> None:
    for verb in ("list", "watch"):
        faults.add(FaultRule(action=Answer(code=403), verb=verb, resource="secrets", times=10_000))
    failures: list[str] = []
    controller = await start(harness, failures)
    await harness.apply(app("web", image="v1/Secret"))
    await harness.clock.sleep(90)
    assert "v1/Secret has delivered no list within 30 s" in failures[0]
    await harness.apply(app("other", image=CONFIG_MAP))
    await harness.clock.sleep(5)
    assert "other" in controller.runs
    run = harness.running["operator"]
    assert run.health.report(run.health.ready)[0], "the operator stays ready"


# -- watches that outlive a tenure ---------------------------------------------------------------------------------


async def one_child(resource: App, ctx: Context[App]) -> None:
    """Create a child with a generated name unless there is one: an old cache leads to a second one."""
    await ctx.watch(CONFIG_MAP)
    if not ctx.children(CONFIG_MAP):
        metadata = {"generateName": f"{resource.name}-"}
        await ctx.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})


@contextlib.contextmanager
def cut_off(faults: FaultPlan, resource: str, *verbs: str) -> Iterator[None]:
    """Fail these requests of replica a for a resource, and cut its watch."""
    rules = [
        faults.add(FaultRule(action=Drop(), resource=resource, verb=verb, client="a", times=0))
        for verb in verbs
    ]
    faults.order(Cut(), resource=resource, client="a")
    yield
    for rule in rules:
        faults.remove(rule)


async def children(harness: Harness) -> Counter[str]:
    """Return how many children each resource has."""
    items = (await harness.client.list(CONFIG_MAP, namespace="default")).items
    owned = [each["metadata"] for each in items if "ownerReferences" in each["metadata"]]
    return Counter(each["ownerReferences"][0]["name"] for each in owned)


async def test_a_shard_that_changes_hands_does_not_act_on_a_watch_that_other_shards_left_behind(
    harness: Harness, faults: FaultPlan
) -> None:
    def replica() -> Operator:
        return Operator(controllers=[Recorder(one_child)], sharding=Sharding(name="apps", shards=4))

    old, new = [[f"{age}-{number}" for number in range(12)] for age in ("old", "new")]
    await harness.install(App)
    await harness.start(replica(), name="a")
    await harness.start(replica(), name="b")
    await harness.clock.sleep(90)
    await harness.apply(*(app(name) for name in old))
    await harness.clock.sleep(10)
    with cut_off(faults, "configmaps", "list", "watch"):
        await harness.apply(*(app(name) for name in new))
        await harness.clock.sleep(10)
        await harness.kill("b")
        await harness.clock.sleep(60)
    await harness.clock.sleep(300)
    assert await children(harness) == Counter(old + new)


async def test_a_new_tenure_does_not_act_on_a_watch_that_a_cancelled_run_has_added(
    harness: Harness, faults: FaultPlan
) -> None:
    def replica() -> Operator:
        return Operator(controllers=[Recorder(one_child)], leader_election="lock")

    names = [f"app-{number}" for number in range(5)]
    await harness.install(App)
    for name in ("a", "b"):
        await harness.start(replica(), name=name)
        await harness.clock.sleep(5)
    with contextlib.ExitStack() as without_lease:
        with cut_off(faults, "configmaps", "list", "watch"):
            await harness.apply(app("seed"))
            await harness.clock.sleep(3)
            without_lease.enter_context(cut_off(faults, "leases", "get", "update"))
            await harness.clock.sleep(20)  # b leads
        await harness.clock.sleep(60)  # the watch of a has its list
        with cut_off(faults, "configmaps", "list", "watch"):
            await harness.apply(*(app(name) for name in names))
            await harness.clock.sleep(10)
            await harness.kill("b")
            without_lease.close()
            await harness.clock.sleep(40)
    await harness.clock.sleep(300)
    assert await children(harness) == Counter(["seed", *names])
