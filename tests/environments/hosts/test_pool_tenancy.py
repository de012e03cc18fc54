"""DomainPools with tenants: a team gets no host from a pool that is not open to it. On both engines."""

from __future__ import annotations

from typing import Any

import pytest_asyncio

from kapsa.environments.hosts.pools import DomainPools
from kapsa.environments.resources import DomainPool
from kapsa.environments.settings import Settings
from tests.environments.sandbox import Sandbox
from tests.environments.tenant import Tenant, secret

INGRESS = "networking.k8s.io/v1/Ingress"


@pytest_asyncio.fixture
async def tenant(sandbox: Sandbox) -> Tenant:
    """A tenant of the operator's own DomainPools."""
    made = Tenant(sandbox)
    made.systems.domains = DomainPools(Settings())  # type: ignore[assignment] - in place of the fake
    await made.start()
    return made


def domain(tenant: Tenant) -> str:
    return f"{tenant.sandbox.unique}.example.com"


async def pool(tenant: Tenant, *, wildcard: str = "", **allowed: Any) -> None:
    """Apply the pool of the test, open to these namespaces."""
    spec: dict[str, Any] = {"baseDomains": [domain(tenant)], "allowedNamespaces": allowed}
    if wildcard:
        spec["wildcardSecretName"] = wildcard
    await tenant.sandbox.apply(DomainPool, tenant.sandbox.unique, spec)


async def ask(tenant: Tenant) -> None:
    await tenant.project(domain={"domainPoolRef": {"name": tenant.sandbox.unique}})
    await tenant.environment()


async def has_no_host(tenant: Tenant) -> None:
    """Wait until the environment is refused, and check that nothing of it is reached."""
    refused = await tenant.reaches("one", "IngressReady", "False", "DomainPoolNotAllowed")
    assert refused.status.url is None
    assert refused.status.failure is not None
    assert tenant.name in refused.status.failure.message
    held = (await tenant.client.get(DomainPool, tenant.sandbox.unique)).status.allocations
    assert held == []
    assert (await tenant.client.list(INGRESS, namespace=tenant.namespace_of("one"))).items == []


async def test_a_pool_is_open_to_the_namespaces_it_names(tenant: Tenant) -> None:
    await pool(tenant, names=["another-team"])
    await ask(tenant)
    await has_no_host(tenant)
    await pool(tenant, names=["another-team", tenant.name])
    assert (await tenant.ready()).status.url == f"https://one.{domain(tenant)}"


async def test_a_pool_is_opened_by_a_label_of_the_namespace(tenant: Tenant) -> None:
    await pool(tenant, selector={"matchLabels": {"tier": "gold"}})
    await ask(tenant)
    await has_no_host(tenant)
    await tenant.client.patch("v1/Namespace", tenant.name, {"metadata": {"labels": {"tier": "gold"}}})
    assert (await tenant.ready()).status.url == f"https://one.{domain(tenant)}"


async def test_a_pool_that_is_closed_later_gives_out_no_new_host(tenant: Tenant) -> None:
    await pool(tenant, names=[tenant.name])
    await ask(tenant)
    held = (await tenant.ready()).status.url
    await pool(tenant, names=["another-team"])
    await tenant.environment("two")
    await tenant.reaches("two", "IngressReady", "False", "DomainPoolNotAllowed")
    assert (await tenant.get()).status.url == held


async def test_the_key_of_a_wildcard_certificate_never_enters_an_environments_namespace(
    tenant: Tenant,
) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": tenant.settings.namespace}}
    await tenant.client.apply(namespace, field_manager="person", force=True)
    wildcard = f"wildcard-{tenant.sandbox.unique}"
    await secret(tenant, wildcard, tenant.settings.namespace, **{"tls.crt": "certificate", "tls.key": "key"})
    await pool(tenant, wildcard=wildcard, names=[tenant.name])
    await ask(tenant)
    host = f"one.{domain(tenant)}"
    ready = await tenant.reaches("one", "TLSReady", "True", "Wildcard")
    assert ready.status.url == f"https://{host}"
    ingress = await tenant.client.get(INGRESS, "kapsa", namespace=tenant.namespace_of("one"))
    assert ingress["spec"]["tls"] == [{"hosts": [host]}], (
        "the ingress controller serves its default certificate"
    )
    assert (await tenant.client.list("v1/Secret", namespace=tenant.namespace_of("one"))).items == []
