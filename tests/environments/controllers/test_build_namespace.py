"""The build namespace: it has walls before a build runs in it, and they are put back."""

from __future__ import annotations

from typing import Any

from kapsa.environments.build.walls import build_walls
from kapsa.environments.settings import Settings
from tests.environments.tenant import BUILD, Tenant

POLICY = "networking.k8s.io/v1/NetworkPolicy"


async def built(tenant: Tenant, commit: str = "one") -> None:
    """Start a build in a namespace that no other test uses."""
    if tenant.sandbox.harness.cluster.engine == "embedded":
        tenant.sandbox.harness.cluster.workloads.delay(finish=600)
    await tenant.sandbox.harness.kill()
    await tenant.start(Settings(build_namespace=namespace_of(tenant)))
    await tenant.project(**BUILD)
    await tenant.environment(commit=commit)
    await tenant.sandbox.exists("v1/ServiceAccount", "kapsa-build", namespace=namespace_of(tenant))


def namespace_of(tenant: Tenant) -> str:
    return f"builds-{tenant.sandbox.unique}"


async def walls(tenant: Tenant, kind: str) -> dict[str, Any]:
    listed = (await tenant.client.list(kind, namespace=namespace_of(tenant))).items
    return {each["metadata"]["name"]: each["spec"] for each in listed}


async def test_builds_are_behind_a_default_deny_with_what_a_build_needs(tenant: Tenant) -> None:
    await built(tenant)
    policies = await walls(tenant, POLICY)
    assert set(policies) == {"kapsa-default-deny", "kapsa-dns", "kapsa-internet"}
    denied = policies["kapsa-default-deny"]
    assert (denied["podSelector"], set(denied["policyTypes"])) == ({}, {"Ingress", "Egress"})
    assert not any(each.get("ingress") for each in policies.values()), "nothing reaches a build"
    (rule,) = policies["kapsa-internet"]["egress"]
    (closed,) = (
        set(each["ipBlock"]["except"]) for each in rule["to"] if each["ipBlock"]["cidr"] == "0.0.0.0/0"
    )
    assert {"10.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"} <= closed


async def test_builds_have_a_quota_and_limits(tenant: Tenant) -> None:
    await built(tenant)
    (quota,) = (await walls(tenant, "v1/ResourceQuota")).values()
    assert {"pods", "requests.cpu", "requests.memory"} <= set(quota["hard"])
    (limits,) = (await walls(tenant, "v1/LimitRange")).values()
    (container,) = limits["limits"]
    assert {"cpu", "memory", "ephemeral-storage"} == set(container["default"])
    assert {"cpu", "memory"} == set(container["max"])


async def test_a_wall_that_somebody_removes_is_back_before_the_next_build(tenant: Tenant) -> None:
    await built(tenant)
    await tenant.client.delete(POLICY, "kapsa-default-deny", namespace=namespace_of(tenant))
    await tenant.environment(commit="two")
    await tenant.sandbox.exists(POLICY, "kapsa-default-deny", namespace=namespace_of(tenant))


async def test_a_second_build_writes_no_wall_again(tenant: Tenant) -> None:
    await built(tenant)
    before = len(tenant.sandbox.writes())
    await tenant.environment(commit="two")
    await tenant.clock.sleep(10)
    written = [str(each.call) for each in tenant.sandbox.writes()[before:]]
    assert not [each for each in written if "networkpolicies" in each and namespace_of(tenant) in each]


def test_private_ranges_that_builds_need_are_named_by_a_setting() -> None:
    settings = Settings(build_egress_cidrs=("10.1.2.0/24",))
    (policy,) = (each for each in build_walls(settings) if each["metadata"]["name"] == "kapsa-internet")
    assert {"ipBlock": {"cidr": "10.1.2.0/24"}} in policy["spec"]["egress"][0]["to"]
