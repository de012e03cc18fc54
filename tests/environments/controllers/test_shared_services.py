"""Shared services: an environment reaches the private addresses that an administrator opens, and no others."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from kapsa.environments.resources import DomainPool, TeamNamespace
from kapsa.environments.settings import Settings
from kapsa.environments.tenancy.shared_services import shared_egress
from kapsa.runtime import Invalid
from tests.environments.sandbox import Sandbox
from tests.environments.tenant import Tenant

POLICY = "networking.k8s.io/v1/NetworkPolicy"
POSTGRES: dict[str, Any] = {"name": "postgres", "cidrs": ["10.20.0.0/28"], "ports": [{"port": 5432}]}


async def pool(tenant: Tenant, *services: dict[str, Any], **spec: Any) -> None:
    """Apply the pool of an administrator, which no other test uses."""
    name = f"pool-{tenant.sandbox.unique}"
    desired = {"baseDomains": [f"{name}.example.com"], "sharedServices": list(services), **spec}
    await tenant.sandbox.apply(DomainPool, name, desired)


async def opened(tenant: Tenant) -> list[str]:
    """Return the ranges that the environment reaches by the policy for shared services."""
    policy = await tenant.sandbox.get(POLICY, "kapsa-shared-services", namespace=tenant.namespace_of("one"))
    return (
        []
        if policy is None
        else [each["ipBlock"]["cidr"] for rule in policy["spec"]["egress"] for each in rule["to"]]
    )


async def reaches(tenant: Tenant, *ranges: str) -> None:
    async def holds() -> bool:
        return await opened(tenant) == list(ranges)

    await tenant.sandbox.until(holds, f"the environment reaches {ranges}", seconds=90)


async def test_a_service_is_open_while_a_pool_says_so(tenant: Tenant) -> None:
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    assert await opened(tenant) == []
    await pool(tenant, POSTGRES)
    await reaches(tenant, "10.20.0.0/28")
    policy = await tenant.client.get(POLICY, "kapsa-shared-services", namespace=tenant.namespace_of("one"))
    assert policy["spec"]["policyTypes"] == ["Egress"]
    assert policy["spec"]["egress"][0]["ports"] == [{"protocol": "TCP", "port": 5432}]
    await pool(tenant)
    await reaches(tenant)


async def test_a_service_is_open_to_the_projects_that_the_administrator_names(tenant: Tenant) -> None:
    closed: list[dict[str, Any]] = [
        {**POSTGRES, "name": "a", "cidrs": ["10.1.0.0/16"], "namespaces": {"names": ["other"]}},
        {
            **POSTGRES,
            "name": "b",
            "cidrs": ["10.2.0.0/16"],
            "namespaces": {"names": [tenant.name]},
            "projects": ["x"],
        },
    ]
    mine = {
        "name": "c",
        "cidrs": ["10.3.0.0/16"],
        "namespaces": {"names": [tenant.name]},
        "projects": ["app"],
    }
    await pool(tenant, *closed, mine)
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    await reaches(tenant, "10.3.0.0/16")
    await pool(tenant, *closed, mine, allowedNamespaces={"names": ["other"]})
    await reaches(tenant)


async def test_the_name_of_a_project_alone_opens_nothing(tenant: Tenant) -> None:
    with pytest.raises(
        Invalid, match="projects needs namespaces: any team can create a Project of that name"
    ):
        await pool(tenant, {**POSTGRES, "projects": ["app"]})
    stored = DomainPool.from_dict(
        {
            "apiVersion": DomainPool.api_version,
            "kind": "DomainPool",
            "metadata": {"name": "before-the-rule"},
            "spec": {"baseDomains": ["example.com"], "sharedServices": [{**POSTGRES, "projects": ["app"]}]},
        }
    )
    project = await tenant.project()
    assert shared_egress([stored], project, TeamNamespace(tenant.name, {}), api_server=()) == []


async def test_a_policy_that_is_widened_by_hand_is_restored(tenant: Tenant) -> None:
    await pool(tenant, POSTGRES)
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    await reaches(tenant, "10.20.0.0/28")
    wide = {"spec": {"egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]}}
    await tenant.client.patch(POLICY, "kapsa-shared-services", wide, namespace=tenant.namespace_of("one"))
    await reaches(tenant, "10.20.0.0/28")


async def test_the_api_server_stays_out_of_reach_whatever_a_pool_says(sandbox: Sandbox) -> None:
    tenant = Tenant(sandbox)
    await pool(
        tenant,
        {"name": "all", "cidrs": ["10.96.0.0/12"]},
        {"name": "server", "cidrs": ["10.96.0.1/32"]},
    )
    await tenant.start(Settings(api_server_cidrs=("10.96.0.1/32",)))
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    policy = await tenant.client.get(POLICY, "kapsa-shared-services", namespace=tenant.namespace_of("one"))
    ((peer,),) = [rule["to"] for rule in policy["spec"]["egress"]]
    assert peer["ipBlock"]["cidr"] == "10.96.0.0/12"
    assert "10.96.0.1/32" in peer["ipBlock"]["except"]


async def test_the_addresses_that_the_api_server_announces_stay_out_of_reach_without_a_setting(
    tenant: Tenant,
) -> None:
    service = await tenant.client.get("v1/Service", "kubernetes", namespace="default")
    address = service["spec"]["clusterIP"]
    around = str(ipaddress.ip_network(f"{address}/16", strict=False))
    await pool(tenant, {"name": "all", "cidrs": [around]})
    await tenant.project()
    await tenant.environment()
    await tenant.ready()
    policy = await tenant.client.get(POLICY, "kapsa-shared-services", namespace=tenant.namespace_of("one"))
    ((peer,),) = [rule["to"] for rule in policy["spec"]["egress"]]
    assert peer["ipBlock"]["cidr"] == around
    assert f"{address}/32" in peer["ipBlock"]["except"]


@pytest.mark.parametrize("cidr", ["169.254.169.254/32", "0.0.0.0/0", "8.8.8.8/32", "10.0.0.0/7", "postgres"])
async def test_only_private_ranges_can_be_opened(tenant: Tenant, cidr: str) -> None:
    with pytest.raises(Invalid, match="must be a private address range"):
        await pool(tenant, {"name": "wrong", "cidrs": [cidr]})
