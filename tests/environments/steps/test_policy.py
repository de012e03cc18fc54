"""The policy step: quota, limits, network policies and the labels of the namespace."""

from __future__ import annotations

from typing import Any

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from kapsa.environments.settings import Settings
from tests.environments.sandbox import Sandbox
from tests.environments.tenant import Tenant

pytestmark = pytest.mark.virtual_time

POLICY = "networking.k8s.io/v1/NetworkPolicy"
LINK_LOCAL = "169.254.0.0/16"


@pytest_asyncio.fixture
async def tenant(sandbox: Sandbox) -> Tenant:
    made = Tenant(sandbox)
    await made.start(
        Settings(api_server_cidrs=("203.0.113.7/32", "2001:db8::7/128"), pod_security="restricted")
    )
    await made.project()
    await made.environment()
    await made.ready()
    return made


async def policies(tenant: Tenant) -> dict[str, dict[str, Any]]:
    listed = await tenant.client.list(POLICY, namespace=tenant.namespace_of("one"))
    return {each["metadata"]["name"]: each["spec"] for each in listed.items}


async def hard_of(tenant: Tenant) -> dict[str, str]:
    quota = await tenant.client.get("v1/ResourceQuota", "kapsa-quota", namespace=tenant.namespace_of("one"))
    hard: dict[str, str] = quota["spec"]["hard"]
    return hard


async def test_nothing_comes_in_or_goes_out_that_no_policy_allows(tenant: Tenant) -> None:
    deny = (await policies(tenant))["kapsa-default-deny"]
    assert deny == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


async def test_pods_of_one_environment_reach_each_other_and_no_other_environments(tenant: Tenant) -> None:
    everyone = [{"podSelector": {}}]
    same = (await policies(tenant))["kapsa-same-namespace"]
    assert same["ingress"] == [{"from": everyone}]
    assert same["egress"] == [{"to": everyone}]


async def test_names_are_resolved_by_the_clusters_dns_and_by_a_cache_on_the_node(tenant: Tenant) -> None:
    (rule,) = (await policies(tenant))["kapsa-dns"]["egress"]
    assert {(each["protocol"], each["port"]) for each in rule["ports"]} == {("UDP", 53), ("TCP", 53)}
    places = [each.get("ipBlock", {}).get("cidr") for each in rule["to"]]
    assert "169.254.20.10/32" in places
    assert any("namespaceSelector" in each for each in rule["to"])


async def test_requests_come_from_the_ingress_controller_and_acme_challenges_are_answered(
    tenant: Tenant,
) -> None:
    by_name = await policies(tenant)
    (source,) = by_name["kapsa-ingress-controller"]["ingress"][0]["from"]
    assert source["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "ingress-nginx"}
    solver = by_name["kapsa-acme-solver"]
    assert solver["podSelector"] == {"matchLabels": {"acme.cert-manager.io/http01-solver": "true"}}
    assert solver["ingress"] == [{"ports": [{"protocol": "TCP", "port": 8089}]}]


async def test_the_internet_is_reached_but_not_metadata_services_nodes_or_the_api_server(
    tenant: Tenant,
) -> None:
    (rule,) = (await policies(tenant))["kapsa-internet"]["egress"]
    four, six = (each["ipBlock"] for each in rule["to"])
    assert four["cidr"] == "0.0.0.0/0"
    assert {LINK_LOCAL, "10.0.0.0/8", "203.0.113.7/32"} <= set(four["except"])
    assert six["cidr"] == "::/0"
    assert {"fe80::/10", "fc00::/7", "2001:db8::7/128"} <= set(six["except"])


async def test_the_restricted_pod_security_standard_is_an_option(tenant: Tenant) -> None:
    namespace = await tenant.client.get("v1/Namespace", tenant.namespace_of("one"))
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


async def test_a_container_that_sets_nothing_has_a_limit_for_the_disk_of_its_node(tenant: Tenant) -> None:
    await tenant.project(resources={"defaultQuota": {"ephemeralStorage": "10Gi"}})

    async def is_limited() -> bool:
        hard = await hard_of(tenant)
        return {hard[f"{kind}.ephemeral-storage"] for kind in ("requests", "limits")} == {"10Gi"}

    await tenant.sandbox.until(is_limited, "the quota of the project is applied")
    (pod, *_) = (await tenant.client.list("v1/Pod", namespace=tenant.namespace_of("one"))).items
    (container,) = pod["spec"]["containers"]
    assert container["resources"]["limits"]["ephemeral-storage"] == "2Gi"
    assert container["resources"]["requests"]["ephemeral-storage"] == "128Mi"
    await tenant.project(resources={"defaultQuota": {"ephemeralStorage": "1Ti"}})
    failed = await tenant.reaches("one", "NamespaceReady", "False", "QuotaAboveCeiling")
    assert failed.status.failure is not None
    assert "resources.defaultQuota.ephemeralStorage" in failed.status.failure.message


async def test_a_project_changes_its_quota_field_by_field_and_gets_the_default_back(tenant: Tenant) -> None:
    await tenant.project(resources={"defaultQuota": {"cpu": "2", "storage": "1Gi"}})

    async def has_cpu(amount: str) -> bool:
        return (await hard_of(tenant))["requests.cpu"] == amount

    await tenant.sandbox.until(lambda: has_cpu("2"), "the quota of the project is applied")
    hard = await hard_of(tenant)
    assert (hard["requests.storage"], hard["pods"]) == ("1Gi", "50")
    await tenant.project()
    await tenant.sandbox.until(lambda: has_cpu("8"), "the default quota is applied")


async def test_another_quota_does_not_take_the_readiness_of_an_environment_that_serves(
    tenant: Tenant,
) -> None:
    await tenant.ready()
    with capture_logs() as logs:
        await tenant.project(resources={"defaultQuota": {"cpu": "2"}})

        async def is_limited() -> bool:
            return (await hard_of(tenant))["requests.cpu"] == "2"

        await tenant.sandbox.until(is_limited, "the quota of the project is applied")
        await tenant.ready()
        await tenant.sandbox.at_rest()
    assert [each for each in logs if each["event"] == "environment changed"] == []


async def test_a_project_cannot_raise_its_quota_beyond_the_ceiling(tenant: Tenant) -> None:
    await tenant.project(resources={"defaultQuota": {"pods": 10_000}})
    failed = await tenant.reaches("one", "NamespaceReady", "False", "QuotaAboveCeiling")
    assert failed.status.failure is not None
    assert "at most 200 is allowed" in failed.status.failure.message
    assert (await hard_of(tenant))["pods"] == "50"


async def test_labels_of_the_namespace_are_put_back_and_those_of_others_kept(tenant: Tenant) -> None:
    namespace = tenant.namespace_of("one")
    change = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged", "theirs": "kept"}}}
    await tenant.client.patch("v1/Namespace", namespace, change)
    await tenant.clock.sleep(10)
    labels = (await tenant.client.get("v1/Namespace", namespace))["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    assert labels["theirs"] == "kept"
