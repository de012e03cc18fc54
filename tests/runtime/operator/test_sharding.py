"""Several active replicas share the keys through Leases, and no key has two of them."""

from __future__ import annotations

from collections import Counter

import pytest

from kapsa.devcluster.faults import Answer, Cut, Drop, FaultPlan, FaultRule
from kapsa.runtime import Context, LeaderElection, Operator, Sharding, grants
from kapsa.runtime.operator.shard_leases import owner_of
from kapsa.runtime.testing import Harness
from tests.runtime.sample_app import App, Recorder, app, config_map

pytestmark = pytest.mark.virtual_time

RESOURCES = 40
SHARDS = 8
LEASE = "coordination.k8s.io/v1/Lease"


async def one_config_map(resource: App, ctx: Context[App]) -> None:
    await ctx.apply(config_map(resource.name, data={"image": resource.spec.image}))


def replica(*, shards: int = SHARDS) -> Operator:
    sharding = Sharding(name="apps", shards=shards)
    return Operator(controllers=[Recorder(one_config_map, owns=("v1/ConfigMap",))], sharding=sharding)


async def change_all(harness: Harness, image: str) -> None:
    await harness.apply(*(app(f"app-{number}", image=image) for number in range(RESOURCES)))


def writers(harness: Harness, since: int) -> dict[str, set[str]]:
    """Return the names of the children that each replica has written since that call."""
    by_replica: dict[str, set[str]] = {}
    for each in harness.calls[since:]:
        if each.call.writes and each.call.resource == "configmaps":
            by_replica.setdefault(each.client, set()).add(each.call.name)
    return by_replica


async def share(harness: Harness, image: str) -> dict[str, set[str]]:
    """Change every resource; return which replica wrote which child."""
    since = len(harness.calls)
    await change_all(harness, image)
    await harness.clock.sleep(60)
    shares = writers(harness, since)
    assert sum(map(len, shares.values())) == RESOURCES
    assert len(set().union(*shares.values())) == RESOURCES
    return shares


async def test_replicas_share_the_keys_and_each_key_has_one_writer(harness: Harness) -> None:
    await harness.install(App)
    for name in ("a", "b", "c"):
        await harness.start(replica(), name=name)
    await harness.clock.sleep(90)
    held = {name: run.shards.held for name, run in harness.running.items() if run.shards is not None}
    assert sorted(index for each in held.values() for index in each) == list(range(SHARDS))
    shares = await share(harness, "one")
    assert all(bool(shares.get(name)) == bool(held[name]) for name in held)
    assert len(shares) > 1


async def test_a_replica_that_comes_or_goes_moves_only_its_own_share(harness: Harness) -> None:
    await harness.install(App)
    await harness.start(replica(), name="a")
    await harness.start(replica(), name="b")
    await harness.clock.sleep(90)
    two = await share(harness, "two")
    await harness.start(replica(), name="c")
    await harness.clock.sleep(90)
    three = await share(harness, "three")
    assert three["c"]
    assert three.get("a", set()) <= two.get("a", set())
    assert three.get("b", set()) <= two.get("b", set())
    await harness.stop("c")
    await harness.clock.sleep(30)
    assert await share(harness, "again") == two


async def test_a_clean_stop_hands_over_within_seconds_and_leaves_no_announcement(harness: Harness) -> None:
    await harness.install(App)
    await harness.start(replica(), name="a")
    await harness.start(replica(), name="b")
    await harness.clock.sleep(90)
    await harness.stop("a")
    await harness.clock.sleep(15)  # two periods of five seconds, and a list
    rest = harness.running["b"].shards
    assert rest is not None
    assert rest.held == list(range(SHARDS))
    leases = (await harness.client.list(LEASE, namespace="default")).items
    assert sum("-replica-" in each["metadata"]["name"] for each in leases) == 1


async def test_a_replica_that_is_cut_off_stops_before_another_one_takes_its_shards(
    harness: Harness, faults: FaultPlan
) -> None:
    await harness.install(App)
    one = await harness.start(replica(), name="a")
    two = await harness.start(replica(), name="b")
    await harness.clock.sleep(90)
    assert one.shards is not None
    assert two.shards is not None
    before = set(one.shards.held)
    assert before
    faults.add(FaultRule(action=Drop(), client="a", times=0))
    faults.order(Cut(), client="a")
    for _ in range(400):
        assert not set(one.shards.held) & set(two.shards.held)
        await harness.clock.sleep(0.25)
    assert one.shards.held == []
    assert two.shards.held == list(range(SHARDS))


async def test_a_run_that_takes_long_ends_before_its_key_is_handed_over(harness: Harness) -> None:
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()

    async def slow(resource: App, ctx: Context[App]) -> None:
        running[resource.name] += 1
        most[resource.name] = max(most[resource.name], running[resource.name])
        try:
            await ctx.client.clock.sleep(20)
        finally:
            running[resource.name] -= 1

    def slow_replica() -> Operator:
        return Operator(
            controllers=[Recorder(slow, max_concurrent_reconciles=RESOURCES)],
            sharding=Sharding(name="apps", shards=SHARDS),
        )

    await harness.install(App)
    await change_all(harness, "one")
    await harness.start(slow_replica(), name="a")
    for name in ("b", "c", "d"):
        await harness.clock.sleep(35)
        await change_all(harness, name)
        await harness.start(slow_replica(), name=name)
    await harness.clock.sleep(120)
    assert set(most) == {f"app-{number}" for number in range(RESOURCES)}
    assert set(most.values()) == {1}


async def test_the_shards_of_a_crashed_replica_are_taken_one_lease_later(harness: Harness) -> None:
    await harness.install(App)
    await harness.start(replica(), name="a")
    rest = await harness.start(replica(), name="b")
    await harness.clock.sleep(90)
    await harness.kill("a")
    await harness.clock.sleep(45)  # the lease, and up to two periods to notice
    assert rest.shards is not None
    assert rest.shards.held == list(range(SHARDS))


async def test_a_malformed_lease_of_a_replica_does_not_end_the_balance(harness: Harness) -> None:
    await harness.install(App)
    one = await harness.start(replica(), name="a")
    await harness.clock.sleep(30)
    assert one.shards is not None
    replicas = one.shards._replicas  # no valid object makes it fail

    async def fail() -> frozenset[str]:
        raise KeyError("resourceVersion")

    live, replicas.live = replicas.live, fail  # type: ignore[method-assign]
    await harness.clock.sleep(30)
    assert "KeyError" in one.health.report(one.health.ready)[1]
    replicas.live = live  # type: ignore[method-assign]
    two = await harness.start(replica(), name="b")
    await harness.clock.sleep(60)
    assert two.shards is not None
    assert sorted(one.shards.held + two.shards.held) == list(range(SHARDS))
    assert two.shards.held


async def test_what_a_dead_replica_left_behind_is_deleted_in_time(harness: Harness) -> None:
    await harness.install(App)
    await harness.start(replica(), name="a")
    await harness.start(replica(), name="b")
    await harness.clock.sleep(60)
    await harness.kill("a")
    await harness.clock.sleep(400)
    leases = (await harness.client.list(LEASE, namespace="default")).items
    assert sum("-replica-" in each["metadata"]["name"] for each in leases) == 1


async def test_the_declared_rights_suffice_for_sharding(harness: Harness) -> None:
    await harness.install(App)
    operator = replica()
    await harness.start(operator, name="a")
    await harness.start(replica(), name="b")
    await harness.clock.sleep(60)
    await change_all(harness, "one")
    await harness.clock.sleep(60)
    await harness.kill("a")
    await harness.clock.sleep(400)
    await harness.stop("b")
    harness.verify_rights(operator)
    leases = [rule for grant in grants(operator.rights(), namespace="default") for rule in grant.rules]
    assert any(rule.resources == ("leases",) and "list" in rule.verbs for rule in leases)


async def test_metrics_of_the_shards_are_added_up(harness: Harness) -> None:
    await harness.install(App)
    run = await harness.start(replica(), name="a")
    await harness.clock.sleep(30)
    lines = run.metrics.render().decode().splitlines()
    assert lines.count('workqueue_depth{controller="app"} 0.0') == 1
    assert 'leader_election_master_status{name="apps-shard-0"} 1.0' in lines
    ready, report = run.health.report(run.health.ready)
    assert ready
    assert f"[+] sharding: holds {SHARDS} of {SHARDS} shards, 1 replicas" in report


def elected() -> Operator:
    return Operator(
        controllers=[Recorder(one_config_map, owns=("v1/ConfigMap",))],
        leader_election=LeaderElection(name="apps"),
    )


@pytest.mark.parametrize("before", [elected(), replica(shards=5)], ids=["election", "other number"])
async def test_replicas_take_nothing_while_one_that_divides_the_keys_differently_is_live(
    harness: Harness, before: Operator
) -> None:
    await harness.install(App)
    await change_all(harness, "one")
    await harness.start(before, name="before")
    await harness.clock.sleep(60)
    after = await harness.start(replica(), name="after")
    assert after.shards is not None
    for _ in range(60):
        await harness.clock.sleep(1)
        assert after.shards.held == []
    assert "sharding: takes no shard while" in after.health.report(after.health.ready)[1]
    assert set(writers(harness, 0)) == {"before"}
    await harness.stop("before")
    await harness.clock.sleep(20)
    assert after.shards.held == list(range(SHARDS))


async def test_a_new_division_waits_for_the_runs_of_a_replica_that_stops(harness: Harness) -> None:
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()

    async def slow(resource: App, ctx: Context[App]) -> None:
        running[resource.name] += 1
        most[resource.name] = max(most[resource.name], running[resource.name])
        try:
            await ctx.client.clock.sleep(20)
        finally:
            running[resource.name] -= 1

    def slow_replica(shards: int) -> Operator:
        controller = Recorder(slow, max_concurrent_reconciles=RESOURCES)
        return Operator(controllers=[controller], sharding=Sharding(name="apps", shards=shards))

    await harness.install(App)
    await harness.start(slow_replica(4), name="before")
    await harness.clock.sleep(60)
    after = await harness.start(slow_replica(8), name="after")
    await harness.clock.sleep(60)
    await change_all(harness, "one")
    await harness.clock.sleep(1)
    assert sum(running.values()) == RESOURCES
    await harness.stop("before")
    await harness.clock.sleep(100)
    assert after.shards is not None
    assert after.shards.held == list(range(8))
    assert set(most.values()) == {1}


async def test_a_new_division_waits_for_a_replica_that_cannot_announce_itself(
    harness: Harness, faults: FaultPlan
) -> None:
    await harness.install(App)
    before = await harness.start(replica(shards=4), name="before")
    await harness.clock.sleep(60)
    faults.add(
        FaultRule(
            action=Answer(code=403, reason="Forbidden"),
            client="before",
            verb="patch",
            resource="leases",
            times=0,
        )
    )
    after = await harness.start(replica(), name="after")
    assert before.shards is not None
    assert after.shards is not None
    for _ in range(100):
        await harness.clock.sleep(2)
        assert after.shards.held == []
    assert before.shards.held == [0, 1, 2, 3]
    await harness.kill("before")
    await harness.clock.sleep(60)
    assert after.shards.held == list(range(SHARDS))


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_one_more_replica_takes_shards_from_others_and_moves_no_other(count: int) -> None:
    replicas = [f"replica-{number}" for number in range(count)]
    for shard in range(256):
        before, after = owner_of(shard, replicas), owner_of(shard, [*replicas, "new"])
        assert after in (before, "new")


def test_sharding_and_leader_election_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="pass one of the two"):
        Operator(controllers=[], sharding="apps", leader_election=LeaderElection(name="apps"))


@pytest.mark.parametrize("shards", [0, 257])
def test_the_number_of_shards_is_bounded(shards: int) -> None:
    with pytest.raises(ValueError, match="1 to 256 shards"):
        Sharding(name="apps", shards=shards)
