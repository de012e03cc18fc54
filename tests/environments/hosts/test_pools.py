"""The allocation of hosts: no two environments ever hold the same."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kapsa.adapters.errors import ExternalError
from kapsa.devcluster import FaultPlan
from kapsa.devcluster.faults import Answer, Delay, Drop, FaultRule
from kapsa.environments.controllers.domain_pool import DomainPoolController
from kapsa.environments.hosts.choice import BUILT_IN
from kapsa.environments.hosts.pools import DomainPools
from kapsa.environments.metrics import EnvironmentMetrics
from kapsa.environments.resources import KINDS, DomainPool, Environment, Project, TeamNamespace
from kapsa.environments.settings import Settings
from kapsa.runtime import Context, Controller, Operator, Requeue, rule_for
from kapsa.runtime.testing import Harness, Sample, Scenario, crash_at_every_write
from tests.environments.sandbox import Sandbox


def project(pool: str) -> Project:
    spec = {
        "source": {"repositoryUrl": "https://example.com/x"},
        "deployment": {"type": "image"},
        "domain": {"domainPoolRef": {"name": pool}} if pool else {},
    }
    return Project.from_dict({"metadata": {"name": "app", "namespace": "team"}, "spec": spec})


class HostKeeper(Controller[Environment]):
    """A controller that only allocates a host for an environment."""

    name = "keeper"
    reads = (DomainPool,)
    finalizer = "test/host"
    rules = (rule_for(DomainPool, "create", "patch"),)
    max_concurrent_reconciles = 8

    def __init__(self, settings: Settings | None = None, *, pool: str = "", shard: str = "") -> None:
        self.domains = DomainPools(settings or Settings(), metrics=EnvironmentMetrics(), rng=random.Random(1))
        self.project = project(pool)
        if shard:
            self.labels = {"shard": shard}
        super().__init__()

    async def reconcile(self, environment: Environment, ctx: Context[Environment]) -> Requeue | None:
        try:
            grant = await self.domains.allocate(ctx, environment, self.project, TeamNamespace("team"))
        except ExternalError as error:
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


async def start(sandbox: Sandbox) -> None:
    """Run an operator on the environments of this test only, with its pool."""
    await sandbox.start(make_operator(pool=f"pool-{sandbox.unique}", shard=sandbox.unique))


async def ask(sandbox: Sandbox, name: str, host: str = "", *, namespace: str = "", shard: str = "") -> None:
    await sandbox.harness.apply(
        environment(name, namespace or sandbox.namespace, host, shard or sandbox.unique)
    )


async def host_of(sandbox: Sandbox, name: str) -> str:
    environment = await sandbox.condition(Environment, name)
    assert environment.status.url is not None
    return str(environment.status.url)


async def make_pool(sandbox: Sandbox, **spec: Any) -> str:
    """Create a pool that no other test uses. Returns its domain."""
    domain = f"{sandbox.unique}.example.com"
    await sandbox.apply(DomainPool, f"pool-{sandbox.unique}", {"baseDomains": [domain], **spec})
    return domain


async def hosts(sandbox: Sandbox) -> dict[str, str]:
    """Return the environment of each host in all pools."""
    pools = (await sandbox.client.list(DomainPool)).items
    allocations = [each for each_pool in pools for each in each_pool.status.allocations]
    assert len({each.host for each in allocations}) == len(allocations), "one host is held twice"
    return {each.host: each.environment for each in allocations}


@pytest.mark.virtual_time
async def test_without_a_pool_hosts_are_below_the_preview_domain(sandbox: Sandbox) -> None:
    await sandbox.start(make_operator())
    await ask(sandbox, "pr-123")
    assert await host_of(sandbox, "pr-123") == "pr-123.preview.catalyst.dev"
    made = await sandbox.get(DomainPool, BUILT_IN)
    assert made.status.allocated == 1
    assert [(each.domain, each.allocated) for each in made.status.domains] == [("preview.catalyst.dev", 1)]
    await sandbox.harness.stop()
    await sandbox.start(make_operator(Settings(preview_domain="other.dev")))
    await ask(sandbox, "pr-124")
    assert await host_of(sandbox, "pr-124") == "pr-124.other.dev"


@pytest.mark.virtual_time
async def test_a_pool_that_comes_later_is_used_for_new_hosts_only(sandbox: Sandbox) -> None:
    await sandbox.start(make_operator())
    await ask(sandbox, "first")
    assert await host_of(sandbox, "first") == "first.preview.catalyst.dev"
    await sandbox.apply(DomainPool, "ours", {"baseDomains": ["ours.dev"]})
    await ask(sandbox, "second")
    assert await host_of(sandbox, "second") == "second.ours.dev"
    await sandbox.at_rest()
    assert await host_of(sandbox, "first") == "first.preview.catalyst.dev"


async def test_many_environments_at_once_get_a_host_each(sandbox: Sandbox) -> None:
    domain = await make_pool(sandbox, certManager={"issuerRef": {"name": "le"}}, wildcardSecretName="wild")
    await start(sandbox)
    names = [f"pr-{number}" for number in range(20)]
    for name in names:
        await ask(sandbox, name)
    allocated = {name: await host_of(sandbox, name) for name in names}
    assert allocated == {name: f"{name}.{domain}" for name in names}
    made = await sandbox.get(DomainPool, f"pool-{sandbox.unique}")
    assert made.status.allocated == 20
    assert made.status.is_true("Ready")
    condition = (await sandbox.get(Environment, "pr-0")).status.condition("Ready")
    assert condition.message == "('ClusterIssuer', 'le') wild"


async def test_a_pool_without_an_issuer_has_that_of_the_settings(sandbox: Sandbox) -> None:
    await make_pool(sandbox)
    await start(sandbox)
    await ask(sandbox, "one")
    await host_of(sandbox, "one")
    condition = (await sandbox.get(Environment, "one")).status.condition("Ready")
    assert condition.message == "('ClusterIssuer', 'letsencrypt-prod') None"


async def test_a_wildcard_certificate_is_used_for_one_label_and_no_more(sandbox: Sandbox) -> None:
    domain = await make_pool(sandbox, wildcardSecretName="wild")
    await start(sandbox)
    for name, host, secret in (("near", f"near.{domain}", "wild"), ("far", f"very.far.{domain}", "None")):
        await ask(sandbox, name, host)
        assert await host_of(sandbox, name) == host
        condition = (await sandbox.get(Environment, name)).status.condition("Ready")
        assert condition.message.endswith(f" {secret}")


async def test_hosts_survive_a_restart_and_cost_no_write_then(sandbox: Sandbox) -> None:
    domain = await make_pool(sandbox)
    await start(sandbox)
    await ask(sandbox, "one")
    assert await host_of(sandbox, "one") == f"one.{domain}"
    await sandbox.at_rest()
    await sandbox.harness.stop()
    before = len(sandbox.writes())
    await start(sandbox)
    await sandbox.clock.sleep(5)
    assert await host_of(sandbox, "one") == f"one.{domain}"
    assert sandbox.writes()[before:] == []


async def test_a_host_is_free_again_once_its_environment_is_gone(sandbox: Sandbox) -> None:
    domain = await make_pool(sandbox)
    await start(sandbox)
    host = f"shop.{domain}"
    await ask(sandbox, "one", host)
    assert await host_of(sandbox, "one") == host
    await ask(sandbox, "two", host)
    await sandbox.condition(Environment, "two", "False", reason="HostTaken")
    await sandbox.client.delete(Environment, "one", namespace=sandbox.namespace)
    await sandbox.gone(Environment, "one")
    assert await host_of(sandbox, "two") == host
    assert (await hosts(sandbox))[host] == f"{sandbox.namespace}/two"


async def test_a_host_that_is_changed_is_swapped(sandbox: Sandbox) -> None:
    domain = await make_pool(sandbox)
    await start(sandbox)
    await ask(sandbox, "one", f"old.{domain}")
    assert await host_of(sandbox, "one") == f"old.{domain}"
    await ask(sandbox, "one", f"new.{domain}")
    assert await host_of(sandbox, "one") == f"new.{domain}"
    assert {host for host in await hosts(sandbox) if host.endswith(domain)} == {f"new.{domain}"}


async def test_a_host_is_taken_back_from_an_environment_that_could_not_give_it_back(sandbox: Sandbox) -> None:
    domain = await make_pool(sandbox)
    await start(sandbox)
    await ask(sandbox, "one")
    assert await host_of(sandbox, "one") == f"one.{domain}"
    await sandbox.harness.stop()
    await sandbox.client.delete(Environment, "one", namespace=sandbox.namespace)
    await sandbox.client.patch(
        Environment, "one", {"metadata": {"finalizers": None}}, namespace=sandbox.namespace
    )
    await sandbox.gone(Environment, "one")
    assert f"one.{domain}" in await hosts(sandbox)
    await start(sandbox)

    async def taken_back() -> bool:
        return f"one.{domain}" not in await hosts(sandbox)

    await sandbox.until(taken_back, "the host is free again")


async def test_two_operators_never_give_one_host_to_two(sandbox: Sandbox) -> None:
    domain = await make_pool(sandbox)
    other = f"{sandbox.namespace}-b"
    await sandbox.make_namespace(other)
    for shard in ("a", "b"):
        keeper = HostKeeper(pool=f"pool-{sandbox.unique}", shard=f"{sandbox.unique}-{shard}")
        await sandbox.start(Operator(controllers=[keeper], name="kapsa"), name=shard)
    names = [f"pr-{number}" for number in range(8)]
    for name in names:
        await ask(sandbox, name, shard=f"{sandbox.unique}-a")
        await ask(sandbox, name, namespace=other, shard=f"{sandbox.unique}-b")

    async def all_have_one() -> bool:
        allocated = [host for host in await hosts(sandbox) if host.endswith(domain)]
        return len(allocated) == 2 * len(names)

    await sandbox.until(all_have_one, "each environment has a host of its own")


@pytest.mark.virtual_time
async def test_a_pool_that_comes_between_a_look_and_a_write_gives_no_host_to_a_second(
    sandbox: Sandbox, faults: FaultPlan
) -> None:
    faults.add(FaultRule(action=Delay(5.0), verb="patch", resource="domainpools/status", client="slow"))
    for shard in ("slow", "quick"):
        keeper = HostKeeper(Settings(preview_domain="example.com"), shard=shard)
        await sandbox.start(Operator(controllers=[keeper], name="kapsa"), name=shard)
    await ask(sandbox, "slow", "www.example.com", shard="slow")
    await sandbox.clock.sleep(2)  # it has looked, and its write is under way
    await sandbox.apply(DomainPool, "later", {"baseDomains": ["example.com"]})
    await ask(sandbox, "quick", "www.example.com", shard="quick")
    await sandbox.condition(Environment, "quick")
    await sandbox.condition(Environment, "slow", "False", reason="HostTaken")
    assert await hosts(sandbox) == {"www.example.com": f"{sandbox.namespace}/quick"}


async def test_a_pool_with_another_ones_domain_says_so(sandbox: Sandbox) -> None:
    await sandbox.start(make_operator())
    domain = await make_pool(sandbox)
    await sandbox.condition(DomainPool, f"pool-{sandbox.unique}")
    await sandbox.clock.sleep(1.1)  # creation times have whole seconds
    await sandbox.apply(DomainPool, f"copy-{sandbox.unique}", {"baseDomains": [domain, f"x.{domain}"]})
    copy = await sandbox.condition(DomainPool, f"copy-{sandbox.unique}", "False", reason="DomainTaken")
    assert f"pool-{sandbox.unique}" in copy.status.condition("Ready").message
    await sandbox.client.delete(DomainPool, f"pool-{sandbox.unique}")
    await sandbox.condition(DomainPool, f"copy-{sandbox.unique}")


# -- the end of a pool ---------------------------------------------------------------------------------------


async def test_a_pool_that_is_deleted_stays_until_its_last_host_is_given_back(sandbox: Sandbox) -> None:
    domain, name = await make_pool(sandbox), f"pool-{sandbox.unique}"
    await start(sandbox)
    for each in ("one", "two"):
        await ask(sandbox, each)
        assert await host_of(sandbox, each) == f"{each}.{domain}"
    await sandbox.client.delete(DomainPool, name)
    pool = await sandbox.condition(DomainPool, name, "False", reason="HostsHeld")
    message = pool.status.condition("Ready").message
    assert "waits for 2 hosts that environments still hold: " in message
    assert f"one.{domain} (environment {sandbox.namespace}/one)" in message
    await sandbox.client.delete(Environment, "one", namespace=sandbox.namespace)
    await sandbox.gone(Environment, "one")
    assert await host_of(sandbox, "two") == f"two.{domain}"
    assert set(await hosts(sandbox)) >= {f"two.{domain}"}
    await sandbox.client.delete(Environment, "two", namespace=sandbox.namespace)
    await sandbox.gone(DomainPool, name)


async def test_a_deleted_pool_whose_hosts_have_no_environment_goes_at_once(sandbox: Sandbox) -> None:
    domain, name = await make_pool(sandbox), f"pool-{sandbox.unique}"
    await start(sandbox)
    await ask(sandbox, "one")
    assert await host_of(sandbox, "one") == f"one.{domain}"
    await sandbox.harness.stop()
    await sandbox.client.delete(Environment, "one", namespace=sandbox.namespace)
    freed = {"metadata": {"finalizers": None}}
    await sandbox.client.patch(Environment, "one", freed, namespace=sandbox.namespace)
    await sandbox.client.delete(DomainPool, name)
    await start(sandbox)
    await sandbox.gone(DomainPool, name)


@pytest.mark.virtual_time
async def test_new_hosts_come_from_the_built_in_pool_while_the_only_other_is_deleted(
    sandbox: Sandbox,
) -> None:
    await sandbox.apply(DomainPool, "ours", {"baseDomains": ["ours.dev"]})
    await sandbox.start(make_operator())
    await ask(sandbox, "first")
    assert await host_of(sandbox, "first") == "first.ours.dev"
    await sandbox.client.delete(DomainPool, "ours")
    await sandbox.condition(DomainPool, "ours", "False", reason="HostsHeld")
    await ask(sandbox, "second")
    assert await host_of(sandbox, "second") == "second.preview.catalyst.dev"
    assert await host_of(sandbox, "first") == "first.ours.dev"


@pytest.mark.virtual_time
@pytest.mark.parametrize("action", [Answer(code=409, reason="Conflict"), Answer(code=500), Drop()])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_write_that_fails_leaves_every_host_with_one_holder(
    sandbox: Sandbox, faults: FaultPlan, action: Any, when: Any
) -> None:
    domain = await make_pool(sandbox)
    rule = FaultRule(
        action=action, verb="patch", resource="domainpools/status", client="operator", nth=2, when=when
    )
    faults.add(rule)
    await start(sandbox)
    for name in ("one", "two", "three"):
        await ask(sandbox, name)
    for name in ("one", "two", "three"):
        assert await host_of(sandbox, name) == f"{name}.{domain}"
    assert len(await hosts(sandbox)) == 3
    assert rule.fired == 1


@pytest.mark.virtual_time
async def test_a_crash_at_any_write_leaves_every_host_with_one_holder(
    sample: Sample | None, record_property: Any
) -> None:
    async def prepare(harness: Harness) -> None:
        await harness.install(*KINDS)
        for name in ("one", "two"):
            await harness.apply(environment(name, "default"))

    async def delete(harness: Harness) -> None:
        await harness.client.delete(Environment, "one", namespace="default")

    scenario = Scenario(operator=make_operator, prepare=prepare, steps=[delete])
    report = await crash_at_every_write(scenario, sample=sample)
    record_property("sweep", f"hosts: {report}")
    assert not report.failures, str(report)
    assert report.total >= 36
