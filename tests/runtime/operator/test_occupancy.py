"""An operator of many clusters works in each cluster under one name at a time."""

from __future__ import annotations

import pytest

from kapsa.devcluster.faults import Answer, FaultRule
from kapsa.runtime import Context, Operator, PolicyRule, Requeue, Sharding, grants
from kapsa.runtime.testing import Harness
from tests.runtime.operator.member_clusters import Announced, members
from tests.runtime.sample_app import App, Recorder, app

pytestmark = pytest.mark.virtual_time


class Overlaps:
    """Slow runs of resources, and how many runs a resource had at a time."""

    def __init__(self, *, again: Requeue | None = None) -> None:
        self._again = again
        self._present: dict[str, int] = {}
        self.most = 0
        self.runs: list[tuple[str, str]] = []
        """The names of cluster and resource of each run, in order."""

    async def work(self, resource: App, ctx: Context[App]) -> Requeue | None:
        runs = self._present.get(resource.name, 0) + 1
        self._present[resource.name] = runs
        self.most = max(self.most, runs)
        self.runs.append((ctx.cluster, resource.name))
        try:
            await ctx.client.clock.sleep(20)
        finally:
            self._present[resource.name] -= 1
        return self._again


def readiness(harness: Harness, name: str = "operator") -> str:
    run = harness.running[name]
    ready, report = run.health.report(run.health.ready)
    assert ready
    return report


async def test_a_cluster_that_was_renamed_waits_for_the_runs_under_its_old_name(harness: Harness) -> None:
    async with members(harness, "eu") as clusters:
        target = clusters["eu"].cluster()
        provider, overlaps = Announced({"eu": target}), Overlaps()
        await clusters["eu"].harness.apply(app())
        await harness.start(Operator(controllers=[Recorder(overlaps.work)], clusters=provider))
        await harness.clock.sleep(5)
        provider.announce({"europe": target})
        await harness.clock.sleep(5)
        assert "[~] cluster europe: this is the cluster eu, too: it waits until eu has left" in readiness(
            harness
        )
        await harness.clock.sleep(60)
        assert overlaps.runs == [("eu", "web"), ("europe", "web")]
        assert overlaps.most == 1
        assert list(harness.running["operator"].clusters) == ["europe"]


async def test_a_cluster_with_two_names_is_worked_in_once_until_one_of_them_goes(harness: Harness) -> None:
    async with members(harness, "eu") as clusters:
        target = clusters["eu"].cluster()
        provider, overlaps = Announced({"eu": target}), Overlaps()
        await harness.start(Operator(controllers=[Recorder(overlaps.work)], clusters=provider))
        await harness.settle()
        provider.announce({"eu": target, "europe": target})
        await clusters["eu"].harness.apply(app())
        await harness.clock.sleep(60)
        assert overlaps.runs == [("eu", "web")]
        assert "[~] cluster europe: this is the cluster eu, too" in readiness(harness)
        provider.announce({"eu": target})  # the second name goes while it waits
        await harness.clock.sleep(5)
        assert "europe" not in readiness(harness)
        provider.announce({"eu": target, "europe": target})
        await harness.clock.sleep(5)
        provider.announce({"europe": target})
        await harness.clock.sleep(60)
        assert overlaps.runs == [("eu", "web"), ("europe", "web")]


@pytest.mark.parametrize(
    ("answer", "remedy"),
    [
        (Answer(code=403, reason="Forbidden"), "grant `get` on the namespace kube-system"),
        (Answer(code=404, reason="NotFound"), "the cluster has no namespace kube-system"),
    ],
    ids=["forbidden", "missing"],
)
async def test_a_cluster_whose_uid_cannot_be_read_is_not_worked_in_until_it_can(
    harness: Harness, answer: Answer, remedy: str
) -> None:
    async with members(harness, "eu") as clusters:
        unreadable = clusters["eu"].faults.add(
            FaultRule(
                action=answer,
                client="operator",
                verb="get",
                resource="namespaces",
                times=0,
            )
        )
        controller = Recorder()
        await clusters["eu"].harness.apply(app())
        provider = Announced({"eu": clusters["eu"].cluster()})
        await harness.start(Operator(controllers=[controller], clusters=provider))
        await harness.clock.sleep(30)
        assert controller.runs == []
        assert remedy in readiness(harness)
        clusters["eu"].faults.remove(unreadable)
        await harness.clock.sleep(120)
        assert controller.runs == ["web"]


async def test_replicas_that_see_a_new_name_at_different_times_do_not_share_a_resource(
    harness: Harness,
) -> None:
    async with members(harness, "eu") as clusters:
        target, overlaps = clusters["eu"].cluster(), Overlaps(again=Requeue(after=1))
        providers = {name: Announced({"eu": target}) for name in ("one", "two")}
        for name, provider in providers.items():
            operator = Operator(
                controllers=[Recorder(overlaps.work, max_concurrent_reconciles=12)],
                clusters=provider,
                sharding=Sharding(name="apps", shards=4),
            )
            await harness.start(operator, name=name)
        await harness.clock.sleep(120)
        await clusters["eu"].harness.apply(*(app(f"app-{number}") for number in range(12)))
        await harness.clock.sleep(2)
        # A name whose hash moves every key to a shard of the other replica.
        providers["one"].announce({"europa": target})
        await harness.clock.sleep(40)
        providers["two"].announce({"europa": target})
        await harness.clock.sleep(120)
        assert overlaps.most == 1
        renamed = {name for cluster, name in overlaps.runs if cluster == "europa"}
        assert renamed == {f"app-{number}" for number in range(12)}


def test_the_rights_in_a_member_cluster_include_its_uid() -> None:
    operator = Operator(controllers=[Recorder()], clusters=Announced({}))
    reading = PolicyRule(
        group="", resources=("namespaces",), verbs=("get",), names=("kube-system",), namespaced=False
    )
    everywhere, *_ = grants(operator.rights(), namespace="shops")
    assert everywhere.namespace is None
    assert reading in everywhere.rules
    home = [rule for grant in grants(operator.home_rights(), namespace="shops") for rule in grant.rules]
    assert reading not in home
