"""Hosts: who gets which, who does not, and that no two ever hold the same."""

from __future__ import annotations

import random
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kapsa.devcluster import FaultPlan
from kapsa.devcluster.faults import Answer, Delay, Drop, Rule
from kapsa.environments.controllers.domain_pool import DomainPoolController
from kapsa.environments.domain_choice import BUILT_IN, DEFAULT_POOL, HostRequest, choose
from kapsa.environments.domains import DomainPools
from kapsa.environments.metrics import EnvironmentMetrics
from kapsa.environments.outside import OutsideError
from kapsa.environments.resources import KINDS, DomainPool, Environment, Project
from kapsa.environments.settings import Settings
from kapsa.runtime import Context, Controller, Operator, Requeue, rule_for
from kapsa.runtime.testing import Harness, Scenario, crash_at_every_write
from tests.environments.stage import Stage

# -- choosing ------------------------------------------------------------------------------------------------------


def pool(
    name: str = "main", *domains: str, age: int = 0, held: dict[str, str] | None = None, **spec: Any
) -> DomainPool:
    """A pool as the server has it; `held` is host to UID."""
    created = datetime(2026, 1, 1, tzinfo=UTC) - timedelta(days=age)
    allocations = [
        {"host": host, "environment": f"team-app/{uid}", "uid": uid} for host, uid in (held or {}).items()
    ]
    return DomainPool.from_dict(
        {
            "metadata": {"name": name, "uid": f"uid-{name}", "creationTimestamp": created.isoformat()},
            "spec": {"baseDomains": list(domains or ("example.com",)), **spec},
            "status": {"allocations": allocations},
        }
    )


def request(uid: str = "me", **more: Any) -> HostRequest:
    return HostRequest(
        uid=uid, environment="team-app/pr-1", **{"labels": ("pr-1", "pr-1-app", "pr-1-app-team"), **more}
    )


def chosen(pools: list[DomainPool], wanted: HostRequest, seed: int = 0) -> str:
    return choose(pools, wanted, random.Random(seed)).host


def test_the_first_name_that_is_free_is_taken() -> None:
    assert chosen([pool()], request()) == "pr-1.example.com"
    held = {"pr-1.example.com": "a"}
    assert chosen([pool(held=held)], request()) == "pr-1-app.example.com"
    held |= {"pr-1-app.example.com": "b", "pr-1-app-team.example.com": "c"}
    last = chosen([pool(held=held)], request())
    assert last.startswith("pr-1-app-team-")
    assert last != chosen([pool(held=held)], request("another"))


def test_a_host_of_another_pool_with_the_same_domain_is_taken_too() -> None:
    junior = pool("junior", "example.com", "b.com", held={"pr-1.example.com": "a"})
    assert chosen([junior, pool("senior", "example.com", age=1)], request()) == "pr-1-app.example.com"


def test_reserved_names_are_given_to_nobody() -> None:
    policy: dict[str, Any] = {"allocationPolicy": {"reservedSubdomains": ["www", "pr-1"]}}
    assert chosen([pool(**policy)], request()) == "pr-1-app.example.com"
    for host in ("www.example.com", "deep.www.example.com"):
        with pytest.raises(OutsideError, match="is reserved") as refused:
            chosen([pool(**policy)], request(host=host))
        assert refused.value.reason == "HostReserved"
    assert chosen([pool(**policy)], request(host="www.deep.example.com")) == "www.deep.example.com"


def test_a_host_that_is_asked_for_is_given_or_refused_with_its_holder() -> None:
    pools = [pool(held={"shop.example.com": "other"})]
    assert chosen(pools, request(host="mine.example.com")) == "mine.example.com"
    with pytest.raises(
        OutsideError, match=r"shop\.example\.com is taken by environment team-app/other"
    ) as refused:
        chosen(pools, request(host="shop.example.com"))
    assert refused.value.reason == "HostTaken"


@pytest.mark.parametrize("host", ["example.com", "shop.example.org", "badexample.com", "b.example.com"])
def test_a_host_outside_the_pools_is_refused(host: str) -> None:
    pools = [pool(), pool("nested", "b.example.com")]
    with pytest.raises(OutsideError, match="not below a domain") as refused:
        chosen(pools, request(host=host))
    assert refused.value.reason == "HostOutsidePools"


def test_a_domain_inside_another_pools_domain_is_never_given_out_as_a_host() -> None:
    pools = [pool(age=1), pool("nested", "pr-1.example.com")]
    assert chosen(pools, request()) == "pr-1-app.example.com"
    assert choose(pools, request(host="x.pr-1.example.com"), random.Random(0)).pool.name == "nested"


def test_a_pool_that_is_named_is_used_and_one_that_is_missing_is_reported() -> None:
    pools = [pool(age=1), pool("other", "other.org")]
    assert chosen(pools, request(pool="other")) == "pr-1.other.org"
    with pytest.raises(OutsideError, match="no DomainPool third") as refused:
        chosen(pools, request(pool="third"))
    assert refused.value.reason == "DomainPoolNotFound"
    with pytest.raises(OutsideError, match="not below a domain"):
        chosen(pools, request(pool="other", host="x.example.com"))


def test_the_default_is_the_marked_pool_else_the_oldest_and_the_built_in_one_last() -> None:
    built_in = pool(BUILT_IN, "built.in", age=9)
    pools = [built_in, pool("young", "young.org"), pool("old", "old.org", age=5)]
    assert chosen(pools, request()) == "pr-1.old.org"
    marked = DomainPool.from_dict(
        {
            **pools[1].to_dict(),
            "metadata": {"name": "young", "uid": "u", "annotations": {DEFAULT_POOL: "true"}},
        }
    )
    assert chosen([built_in, marked, pools[2]], request()) == "pr-1.young.org"
    assert chosen([built_in], request()) == "pr-1.built.in"


def test_a_pool_without_a_domain_of_its_own_gives_out_nothing() -> None:
    with pytest.raises(OutsideError, match="no domain that no other pool has") as refused:
        chosen([pool(age=1), pool("copy")], request(pool="copy"))
    assert refused.value.reason == "DomainTaken"


def spread(strategy: str, count: int) -> Counter[str]:
    """How many of so many hosts each domain gets."""
    held: dict[str, str] = {"old.a.org": "x"}
    last, found = None, Counter[str]()
    for number in range(count):
        made = pool("main", "a.org", "b.org", "c.org", held=held, allocationPolicy={"strategy": strategy})
        made = DomainPool.from_dict(
            {**made.to_dict(), "status": {**made.to_dict()["status"], "lastDomain": last}}
        )
        choice = choose([made], request(f"u{number}", labels=(f"e{number}",)), random.Random(number))
        held[choice.host] = f"u{number}"
        last = choice.domain
        found[choice.domain] += 1
    return found


def test_round_robin_takes_turns() -> None:
    assert spread("round-robin", 7) == {"a.org": 3, "b.org": 2, "c.org": 2}


def test_least_used_fills_up_the_emptiest() -> None:
    assert spread("least-used", 8) == {"a.org": 2, "b.org": 3, "c.org": 3}


def test_random_reaches_every_domain() -> None:
    assert set(spread("random", 30)) == {"a.org", "b.org", "c.org"}


def test_a_name_of_any_length_makes_a_host() -> None:
    environment = Environment.from_dict(
        {
            "metadata": {"name": "x" * 63, "namespace": "team-app", "uid": "u"},
            "spec": {"projectRef": {"name": "app"}, "source": {"commitSha": "a" * 40}},
        }
    )
    host = chosen([pool()], HostRequest.of(environment, project("a" * 63)))
    assert all(len(label) <= 63 for label in host.split("."))


# -- on a cluster --------------------------------------------------------------------------------------------------


def project(name: str = "app", **domain: Any) -> Project:
    return Project.from_dict(
        {
            "metadata": {"name": name, "namespace": "team"},
            "spec": {
                "source": {"repositoryUrl": "https://example.com/x"},
                "deployment": {"type": "image"},
                "domain": domain,
            },
        }
    )


class HostKeeper(Controller[Environment]):
    """Does no more for an environment than to get it a host."""

    name = "keeper"
    reads = (DomainPool,)
    finalizer = "test/host"
    rules = (rule_for(DomainPool, "create", "patch"),)
    max_concurrent_reconciles = 8

    def __init__(self, settings: Settings | None = None, *, pool: str = "", shard: str = "") -> None:
        self.domains = DomainPools(settings or Settings(), metrics=EnvironmentMetrics(), rng=random.Random(1))
        domain: dict[str, Any] = {"domainPoolRef": {"name": pool}} if pool else {}
        self.project = project(**domain)
        if shard:
            self.labels = {"shard": shard}
        super().__init__()

    async def reconcile(self, environment: Environment, ctx: Context[Environment]) -> Requeue | None:
        try:
            grant = await self.domains.allocate(ctx, environment, self.project)
        except OutsideError as error:
            ctx.status.url = None
            ctx.condition("Ready", False, reason=error.reason, message=str(error))
            return Requeue(after=5)
        ctx.status.url = grant.host
        ctx.condition("Ready", True, reason="HasHost", message=f"{grant.issuer} {grant.wildcard_secret}")
        return None

    async def finalize(self, environment: Environment, ctx: Context[Environment]) -> Requeue | None:
        await self.domains.release(ctx, environment.metadata.uid)
        return None


def make_operator(settings: Settings | None = None, **keeper: Any) -> Operator:
    return Operator(controllers=[HostKeeper(settings, **keeper), DomainPoolController()], name="kapsa")


def environment(name: str, namespace: str, host: str = "", shard: str = "") -> dict[str, Any]:
    return {
        "apiVersion": Environment.api_version,
        "kind": "Environment",
        "metadata": {"name": name, "namespace": namespace, "labels": {"shard": shard} if shard else {}},
        "spec": {
            "projectRef": {"name": "app"},
            "source": {"commitSha": "a" * 40},
            "ingress": {"host": host} if host else {},
        },
    }


async def start(stage: Stage) -> None:
    """Run an operator on the environments of this test alone, with the pool that it made."""
    await stage.start(make_operator(pool=f"pool-{stage.unique}", shard=stage.unique))


async def ask(stage: Stage, name: str, host: str = "", *, namespace: str = "", shard: str = "") -> None:
    await stage.harness.apply(environment(name, namespace or stage.namespace, host, shard or stage.unique))


async def host_of(stage: Stage, name: str) -> str:
    found = await stage.condition(Environment, name)
    assert found.status.url is not None
    return str(found.status.url)


async def make_pool(stage: Stage, **spec: Any) -> str:
    """A pool that no other test has; returns its domain."""
    domain = f"{stage.unique}.example.com"
    await stage.apply(DomainPool, f"pool-{stage.unique}", {"baseDomains": [domain], **spec})
    return domain


async def hosts(stage: Stage) -> dict[str, str]:
    """Host to environment, of all pools."""
    pools = (await stage.client.list(DomainPool)).items
    found = [each for each_pool in pools for each in each_pool.status.allocations]
    assert len({each.host for each in found}) == len(found), "one host is held twice"
    return {each.host: each.environment for each in found}


@pytest.mark.virtual_time
async def test_without_a_pool_hosts_are_below_the_preview_domain(stage: Stage) -> None:
    await stage.start(make_operator())
    await ask(stage, "pr-123")
    assert await host_of(stage, "pr-123") == "pr-123.preview.catalyst.dev"
    made = await stage.get(DomainPool, BUILT_IN)
    assert made.status.allocated == 1
    assert [(each.domain, each.allocated) for each in made.status.domains] == [("preview.catalyst.dev", 1)]
    await stage.harness.stop()
    await stage.start(make_operator(Settings(preview_domain="other.dev")))
    await ask(stage, "pr-124")
    assert await host_of(stage, "pr-124") == "pr-124.other.dev"


@pytest.mark.virtual_time
async def test_a_pool_that_comes_later_is_used_for_new_hosts_only(stage: Stage) -> None:
    await stage.start(make_operator())
    await ask(stage, "first")
    assert await host_of(stage, "first") == "first.preview.catalyst.dev"
    await stage.apply(DomainPool, "ours", {"baseDomains": ["ours.dev"]})
    await ask(stage, "second")
    assert await host_of(stage, "second") == "second.ours.dev"
    await stage.at_rest()
    assert await host_of(stage, "first") == "first.preview.catalyst.dev"


async def test_many_environments_at_once_get_a_host_each(stage: Stage) -> None:
    domain = await make_pool(stage, certManager={"issuerRef": {"name": "le"}}, wildcardSecretName="wild")
    await start(stage)
    names = [f"pr-{number}" for number in range(20)]
    for name in names:
        await ask(stage, name)
    found = {name: await host_of(stage, name) for name in names}
    assert found == {name: f"{name}.{domain}" for name in names}
    made = await stage.get(DomainPool, f"pool-{stage.unique}")
    assert made.status.allocated == 20
    assert made.status.is_true("Ready")
    condition = (await stage.get(Environment, "pr-0")).status.condition("Ready")
    assert condition.message == "('ClusterIssuer', 'le') wild"


async def test_hosts_survive_a_restart_and_cost_no_write_then(stage: Stage) -> None:
    domain = await make_pool(stage)
    await start(stage)
    await ask(stage, "one")
    assert await host_of(stage, "one") == f"one.{domain}"
    await stage.at_rest()
    await stage.harness.stop()
    before = len(stage.writes())
    await start(stage)
    await stage.clock.sleep(5)
    assert await host_of(stage, "one") == f"one.{domain}"
    assert stage.writes()[before:] == []


async def test_a_host_is_free_again_once_its_environment_is_gone(stage: Stage) -> None:
    domain = await make_pool(stage)
    await start(stage)
    wanted = f"shop.{domain}"
    await ask(stage, "one", wanted)
    assert await host_of(stage, "one") == wanted
    await ask(stage, "two", wanted)
    await stage.condition(Environment, "two", "False", reason="HostTaken")
    await stage.client.delete(Environment, "one", namespace=stage.namespace)
    await stage.gone(Environment, "one")
    assert await host_of(stage, "two") == wanted
    assert (await hosts(stage))[wanted] == f"{stage.namespace}/two"


async def test_a_host_that_is_changed_is_swapped(stage: Stage) -> None:
    domain = await make_pool(stage)
    await start(stage)
    await ask(stage, "one", f"old.{domain}")
    assert await host_of(stage, "one") == f"old.{domain}"
    await ask(stage, "one", f"new.{domain}")
    assert await host_of(stage, "one") == f"new.{domain}"
    assert {host for host in await hosts(stage) if host.endswith(domain)} == {f"new.{domain}"}


async def test_a_host_is_taken_back_from_an_environment_that_could_not_give_it_back(stage: Stage) -> None:
    domain = await make_pool(stage)
    await start(stage)
    await ask(stage, "one")
    assert await host_of(stage, "one") == f"one.{domain}"
    await stage.harness.stop()
    await stage.client.delete(Environment, "one", namespace=stage.namespace)
    await stage.client.patch(
        Environment, "one", {"metadata": {"finalizers": None}}, namespace=stage.namespace
    )
    await stage.gone(Environment, "one")
    assert f"one.{domain}" in await hosts(stage)
    await start(stage)

    async def taken_back() -> bool:
        return f"one.{domain}" not in await hosts(stage)

    await stage.until(taken_back, "the host is free again")


async def test_two_operators_never_give_one_host_to_two(stage: Stage) -> None:
    domain = await make_pool(stage)
    other = f"{stage.namespace}-b"
    await stage.make_namespace(other)
    for shard in ("a", "b"):
        keeper = HostKeeper(pool=f"pool-{stage.unique}", shard=f"{stage.unique}-{shard}")
        await stage.start(Operator(controllers=[keeper], name="kapsa"), name=shard)
    names = [f"pr-{number}" for number in range(8)]
    for name in names:
        await ask(stage, name, shard=f"{stage.unique}-a")
        await ask(stage, name, namespace=other, shard=f"{stage.unique}-b")

    async def all_have_one() -> bool:
        found = [host for host in await hosts(stage) if host.endswith(domain)]
        return len(found) == 2 * len(names)

    await stage.until(all_have_one, "each of them has a host of its own")


@pytest.mark.virtual_time
async def test_a_pool_that_comes_between_a_look_and_a_write_gives_no_host_to_a_second(
    stage: Stage, faults: FaultPlan
) -> None:
    faults.add(Rule(action=Delay(5.0), verb="patch", resource="domainpools/status", client="slow"))
    for shard in ("slow", "quick"):
        keeper = HostKeeper(Settings(preview_domain="example.com"), shard=shard)
        await stage.start(Operator(controllers=[keeper], name="kapsa"), name=shard)
    await ask(stage, "slow", "www.example.com", shard="slow")
    await stage.clock.sleep(2)  # it has looked, and its write is under way
    await stage.apply(DomainPool, "later", {"baseDomains": ["example.com"]})
    await ask(stage, "quick", "www.example.com", shard="quick")
    await stage.condition(Environment, "quick")
    await stage.condition(Environment, "slow", "False", reason="HostTaken")
    assert await hosts(stage) == {"www.example.com": f"{stage.namespace}/quick"}


async def test_a_pool_with_another_ones_domain_says_so(stage: Stage) -> None:
    await stage.start(make_operator())
    domain = await make_pool(stage)
    await stage.condition(DomainPool, f"pool-{stage.unique}")
    await stage.clock.sleep(1.1)  # creation times have whole seconds
    await stage.apply(DomainPool, f"copy-{stage.unique}", {"baseDomains": [domain, f"x.{domain}"]})
    found = await stage.condition(DomainPool, f"copy-{stage.unique}", "False", reason="DomainTaken")
    assert f"pool-{stage.unique}" in found.status.condition("Ready").message
    await stage.client.delete(DomainPool, f"pool-{stage.unique}")
    await stage.condition(DomainPool, f"copy-{stage.unique}")


@pytest.mark.virtual_time
@pytest.mark.parametrize("action", [Answer(code=409, reason="Conflict"), Answer(code=500), Drop()])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_write_that_fails_leaves_every_host_with_one_holder(
    stage: Stage, faults: FaultPlan, action: Any, when: Any
) -> None:
    domain = await make_pool(stage)
    rule = Rule(
        action=action, verb="patch", resource="domainpools/status", client="operator", nth=2, when=when
    )
    faults.add(rule)
    await start(stage)
    for name in ("one", "two", "three"):
        await ask(stage, name)
    for name in ("one", "two", "three"):
        assert await host_of(stage, name) == f"{name}.{domain}"
    assert len(await hosts(stage)) == 3
    assert rule.fired == 1


@pytest.mark.virtual_time
async def test_a_crash_at_any_write_leaves_every_host_with_one_holder(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def prepare(harness: Harness) -> None:
        await harness.install(*KINDS)
        for name in ("one", "two"):
            await harness.apply(environment(name, "default"))

    async def delete(harness: Harness) -> None:
        await harness.client.delete(Environment, "one", namespace="default")

    report = await crash_at_every_write(Scenario(operator=make_operator, prepare=prepare, steps=[delete]))
    with capsys.disabled():
        sys.stdout.write(f"\nhosts: {report}\n")
    assert not report.failures, str(report)
    assert report.points >= 3 * 6
